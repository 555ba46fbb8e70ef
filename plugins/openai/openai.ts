/** Routes of /v1: the OpenAI-compatible Coding Plan API (specification, section 4.3; `docs/coding.md`). */
import type { FastifyInstance, FastifyRequest, RouteShorthandOptions } from 'fastify'
import fp from 'fastify-plugin'
import { Failure } from '../../src/domain/errors.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { promptBytes } from '../../src/upstream/usage/prompt-size.ts'
import type { Admission } from '../../src/upstream/usage/reservation.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { MODEL } from '../../src/upstream/wires/model-name.ts'
import type { CodingRequest } from '../../src/upstream/wires/wire.ts'
import { STALLED_CLIENT_MS, type SseWriterOptions } from './sse-writer.ts'
import { openRequestHandler } from './request-handler.ts'
import { modelEntry, modelList } from './model-list.ts'
import { openaiMetrics } from './openai-metrics.ts'
import { usageBody } from './usage-route.ts'
import { openAddressVetting } from './vetted-addresses.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** Prompt size in bytes, for the estimate of its tokens; 0 until the body is parsed. */
    promptBytes: number
    /** The validated request. Null on other routes, and once the upstream call is made. */
    codingRequest: CodingRequest | null
  }
}

/** 32 MiB: agents send the whole history, with images, in every request. */
const BODY_LIMIT = 32 * 1024 * 1024

const READERS = { chat: readChatRequest, responses: readResponsesRequest }
type ClientWire = keyof typeof READERS

export type OpenaiOptions = Partial<Pick<SseWriterOptions, 'keepAliveMs' | 'stalledMs'>> & {
  /** How long an upstream is read after the client disconnected (`onAbort: Drain`). */
  drainMs?: number
}

async function openai(app: FastifyInstance, options: OpenaiOptions): Promise<void> {
  const { upstreams, store, clock } = app
  const metrics = openaiMetrics(app.metrics.registry, upstreams)
  const handle = openRequestHandler({
    upstreams,
    clock,
    metrics,
    ids: openIds(app.derivedKeys.ids),
    keepAliveMs: options.keepAliveMs ?? 15_000,
    stalledMs: options.stalledMs ?? STALLED_CLIENT_MS,
    vetAddresses: openAddressVetting(app.config.IMAGE_URLS, app.egress),
    usageHeader: `x-${app.config.BRAND.toLowerCase()}-usage`,
    drainMs: options.drainMs ?? 120_000,
  })

  app.decorateRequest('promptBytes', 0)
  app.decorateRequest('codingRequest', null)
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', (request, payload, done) => {
    app.parseBody(request, payload, 'faithful', (error, value, bytes) => {
      if (!error && bytes) request.promptBytes = promptBytes(bytes)
      done(error, value)
    })
  })

  const admits =
    (wire: ClientWire) =>
    (request: FastifyRequest): Admission => {
      request.codingRequest = READERS[wire](request.body, upstreams.allowed())
      return { promptBytes: request.promptBytes, maxOutputTokens: request.codingRequest.maxOutputTokens }
    }
  const creates = (wire: ClientWire): RouteShorthandOptions => ({
    bodyLimit: BODY_LIMIT,
    config: { api: 'coding', creates: true, admits: admits(wire) },
  })
  const reads: RouteShorthandOptions = { config: { api: 'coding' } }

  app.post('/v1/chat/completions', creates('chat'), (request, reply) => handle(request, reply, 'chat'))
  app.post('/v1/responses', creates('responses'), (request, reply) => handle(request, reply, 'responses'))
  app.register(async (unrouted) => unrouted.errors.own(unrouted, { api: 'coding' }), { prefix: '/v1' })
  app.get('/v1/responses', reads, refuseUpgrade)
  app.get('/v1/models', reads, async () => modelList(upstreams.contextWindow()))
  app.get<{ Params: { model: string } }>('/v1/models/:model', reads, async ({ params }) => {
    if (params.model === '')
      throw new Failure('invalid_request', {
        param: 'model',
        message: 'The address has no name of a model. GET /v1/models lists the models.',
      })
    if (params.model !== MODEL) throw new Failure('model_not_found', { param: 'model' })
    return modelEntry
  })
  app.get('/v1/usage', reads, async ({ caller }) =>
    usageBody(await store.subscription(caller?.key.subscription ?? ''), caller?.key ?? null, clock()),
  )
}

/** A WebSocket handshake arrives as a plain GET, because nothing listens for upgrades. After 426 Codex falls back to HTTPS at once. */
async function refuseUpgrade(request: FastifyRequest): Promise<never> {
  if (request.headers.upgrade !== undefined)
    throw new Failure('upgrade_required', { headers: { upgrade: 'HTTP/1.1', connection: 'close' } })
  throw new Failure('method_not_allowed', { headers: { allow: 'POST' } })
}

export default fp(openai, {
  name: 'openai',
  fastify: '5.x',
  encapsulate: true,
  dependencies: ['errors', 'ops', 'auth', 'request-body', 'metering'],
  decorators: { fastify: ['config', 'egress', 'upstreams', 'store', 'clock', 'derivedKeys', 'metrics'], request: ['startedMs'] },
})
