/**
 * `POST /mcp`: the Media API's endpoints as tools of the Model Context Protocol, over Streamable HTTP without sessions (`docs/mcp.md`).
 * Revision 2026-07-28 is served, and the earlier ones with a handshake. `auth` checks the key; Origin and Host are checked here, because
 * the SDK checks neither.
 */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { Type } from 'typebox'
import { lazy } from '../../src/concurrency/lazy.ts'
import { disconnectSignal } from '../../src/http/disconnect.ts'
import { disconnectStalled, STALLED_CLIENT_MS } from '../../src/http/stalled-clients.ts'
import { Failure } from '../../src/domain/errors.ts'
import { strictValidator } from '../../src/domain/request-validation.ts'
import { isOwnHost, isOwnOrigin } from '../../src/config/own-address.ts'

const BODY_LIMIT = 1024 * 1024

/** One JSON-RPC message. Batches, which revision 2025-06-18 removed, are refused: one could carry any number of calls. */
const Message = Type.Object(
  {
    jsonrpc: Type.Literal('2.0'),
    id: Type.Optional(Type.Unsafe({ type: ['string', 'number', 'null'] })),
    method: Type.Optional(Type.String()),
  },
  { additionalProperties: true },
)

async function mcp(app: FastifyInstance): Promise<void> {
  // The SDK takes a fifth of a second and 20 MB: it is loaded when MCP is used.
  const endpoint = lazy(async () => (await import('./mcp-endpoint.ts')).openEndpoint(app))

  app.setValidatorCompiler(strictValidator)

  app.addHook('onRequest', async ({ headers, socket }) => {
    const allowed =
      isOwnHost(headers.host, app.config) && (headers.origin === undefined || isOwnOrigin(headers.origin, app.config, socket.localPort))
    if (!allowed) throw new Failure('origin_not_allowed')
  })

  app.post('/mcp', { bodyLimit: BODY_LIMIT, config: { api: 'media' }, schema: { body: Message } }, async (request, reply) => {
    const { caller } = request
    if (!caller) throw new Failure('invalid_api_key')
    const { serve } = await endpoint.get()
    const context = { caller, request, signal: disconnectSignal(reply.raw) }
    reply.hijack()
    // A hijacked reply loses the headers that hooks have set.
    for (const [name, value] of Object.entries(reply.getHeaders())) if (value !== undefined) reply.raw.setHeader(name, value)
    // Longer than any wait of a tool. What the SDK streams does not end while nobody reads it.
    disconnectStalled(reply.raw, STALLED_CLIENT_MS)
    await serve(context, reply.raw)
  })

  app.addHook('onClose', async () => (await endpoint.opened())?.close())
}

export default fp(mcp, {
  name: 'mcp',
  fastify: '5.x',
  encapsulate: true,
  dependencies: ['errors', 'auth', 'request-body', 'task-watch'],
  decorators: { fastify: ['clock', 'config', 'errors', 'files', 'taskWatch', 'tasks', 'uploads'], request: ['bodyShare', 'caller'] },
})
