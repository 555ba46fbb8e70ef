/** The failure of a request with a member that has no equivalent on the upstream's wire. Nothing is sent and nothing is charged. */
import { Failure } from '../../domain/errors.ts'

export function unsupported(param: string): Failure {
  return new Failure('unsupported_parameter', { param, message: `The model does not support ${param} on this endpoint at present.` })
}
