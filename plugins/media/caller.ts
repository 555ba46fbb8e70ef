/** The caller of a route behind a key or, in the dashboard, behind a session. */
import type { FastifyContextConfig, FastifyRequest } from 'fastify'
import { Failure } from '../../src/domain/errors.ts'

/** The route configs of a scope. Without `keyless` (see `MediaOptions`) its routes take keys of the product. */
export function configsOf(keyless: boolean): { reads: FastifyContextConfig; creates: FastifyContextConfig } {
  const reads: FastifyContextConfig = { ...(keyless ? {} : { api: 'media' }), problem: true }
  return { reads, creates: { ...reads, creates: true, proves: true } }
}

export type Caller = NonNullable<FastifyRequest['caller']>

/** The caller that `auth`, or the session, has set. Throws `invalid_api_key` on a route without one. */
export function callerOf({ caller }: FastifyRequest): Caller {
  if (!caller) throw new Failure('invalid_api_key')
  return caller
}
