/** One MCP request while it is answered. */
import type { FastifyRequest } from 'fastify'
import type { Submitter } from '../../src/tasks/quote-and-submit.ts'

export type RequestContext = {
  caller: Submitter
  request: FastifyRequest
  /** True once nobody waits for the answer any more. */
  gone: () => boolean
}
