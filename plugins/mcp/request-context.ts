/** The context of one MCP request. */
import type { FastifyRequest } from 'fastify'
import type { Submitter } from '../../src/tasks/submit.ts'

export type RequestContext = {
  caller: Submitter
  request: FastifyRequest
  /** Aborted when the client has left. */
  signal: AbortSignal
}
