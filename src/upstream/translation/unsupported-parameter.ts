/** The failure of a request with a member that has no equivalent on the upstream's wire. Nothing is sent and nothing is charged. */
import { Failure } from '../../domain/errors.ts'

/** `param` is the path of the member in the body of the request. */
export function unsupported(param: string): Failure {
  return new Failure('unsupported_parameter', { param, message: `The model does not support ${param} on this endpoint at present.` })
}
