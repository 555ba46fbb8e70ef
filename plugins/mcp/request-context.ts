/** The context of one MCP request. */
import type { ServerContext } from '@modelcontextprotocol/server'
import type { FastifyRequest } from 'fastify'
import type { Submitter } from '../../src/tasks/submit.ts'

export type RequestContext = {
  caller: Submitter
  request: FastifyRequest
  /** Aborted when the client has left. */
  signal: AbortSignal
}

/** What a call uses of the SDK's context. */
export type CallContext = {
  mcpReq: Pick<ServerContext['mcpReq'], 'signal' | 'notify'> & Partial<Pick<ServerContext['mcpReq'], '_meta' | 'envelope'>>
}
