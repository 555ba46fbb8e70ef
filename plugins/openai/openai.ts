/** Routes of /v1: the OpenAI-compatible Coding Plan API (specification, section 4.3; `docs/coding.md`). */
import type { FastifyInstance, FastifyRequest, RouteShorthandOptions } from 'fastify'
import fp from 'fastify-plugin'
import { Failure } from '../../src/domain/errors.ts'
import { speaksMessages } from '../../src/http/message-errors.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { promptBytes } from '../../src/upstream/usage/prompt-size.ts'
import type { Admission } from '../../src/upstream/usage/reservation.ts'
import { countPromptTokens } from '../../src/upstream/usage/prompt-tokens.ts'
import { betaNames } from '../../src/upstream/policy/betas.ts'
import { checkMessagesBody } from '../../src/upstream/wires/messages/message-checks.ts'
import { readMessagesRequest } from '../../src/upstream/wires/messages/messages-request.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import type { Members } from '../../src/upstream/wires/allowlist.ts'
import { MODEL } from '../../src/upstream/wires/model-name.ts'
import { readBody } from '../../src/upstream/wires/coding-request-validation.ts'
import type { CodingRequest, WireName } from '../../src/upstream/wires/wire.ts'
import { STALLED_CLIENT_MS, type SseWriterOptions } from './sse-writer.ts'
import { openRequestHandler } from './request-handler.ts'
import { messagesModelEntry, messagesModelList, modelEntry, modelList } from './model-list.ts'
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

/** Bytes of a prompt per token, for what a stream tells before the upstream reports its usage. */
const BYTES_PER_TOKEN = 4

/** Validates a parsed body and takes out of it what upstreams do not get: `promptBytes` is the size of what is left. */
type Reader = (
  body: unknown,
  allowed: ReadonlySet<string>,
  headers: FastifyRequest['headers'],
) => { request: CodingRequest; promptBytes: number }
const READERS: Record<WireName, Reader> = {
  chat(body, allowed) {
    const request = readChatRequest(body, allowed)
    return { request, promptBytes: promptBytes('chat', body as Members, allowed) }
  },
  responses(body, allowed) {
    const request = readResponsesRequest(body, allowed)
    return { request, promptBytes: promptBytes('responses', body as Members, allowed) }
  },
  messages(body, allowed, headers) {
    let size = 0
    const promptTokens = (cleaned: Members) => {
      size = promptBytes('messages', cleaned, allowed)
      return Math.ceil(size / BYTES_PER_TOKEN)
    }
    const request = readMessagesRequest(body, allowed, { betas: betaNames(headers['anthropic-beta']), promptTokens })
    return { request, promptBytes: size }
  },
}

export type OpenaiOptions = Partial<Pick<SseWriterOptions, 'keepAliveMs' | 'stalledMs'>> & {
  /** How long an upstream is read after the client disconnected (`onAbort: Drain`). */
  drainMs?: number
  /** How long an upstream is read for its usage once the answer is complete or was stopped. */
  usageMs?: number
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
    usageMs: options.usageMs ?? 3_000,
  })

  app.decorateRequest('promptBytes', 0)
  app.decorateRequest('codingRequest', null)
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', (request, payload, done) => {
    app.parseBody(request, payload, 'faithful', done)
  })

  const admits =
    (wire: WireName) =>
    (request: FastifyRequest): Admission => {
      const read = READERS[wire](request.body, upstreams.allowed(), request.headers)
      request.codingRequest = read.request
      request.promptBytes = read.promptBytes
      return { promptBytes: request.promptBytes, maxOutputTokens: request.codingRequest.maxOutputTokens }
    }
  const creates = (wire: WireName): RouteShorthandOptions => ({
    bodyLimit: BODY_LIMIT,
    config: { api: 'coding', creates: true, admits: admits(wire), ...(wire === 'messages' ? { messages: 'always' } : {}) },
  })
  const reads: RouteShorthandOptions = { config: { api: 'coding' } }
  const readsEither: RouteShorthandOptions = { config: { api: 'coding', messages: 'by version' } }
  const counts: RouteShorthandOptions = { bodyLimit: BODY_LIMIT, config: { api: 'coding' } }

  app.post('/v1/chat/completions', creates('chat'), (request, reply) => handle(request, reply, 'chat'))
  app.post('/v1/responses', creates('responses'), (request, reply) => handle(request, reply, 'responses'))
  app.post('/v1/messages', creates('messages'), (request, reply) => handle(request, reply.header('request-id', request.id), 'messages'))
  app.post('/v1/messages/count_tokens', { ...counts, config: { api: 'coding', messages: 'always' } }, async (request, reply) => {
    reply.header('request-id', request.id)
    return { input_tokens: await countPromptTokens(checkMessagesBody(request.body)) }
  })
  app.post('/v1/responses/input_tokens', counts, async ({ body }) => {
    return { object: 'response.input_tokens', input_tokens: await countPromptTokens(readBody(body)) }
  })
  app.register(async (unrouted) => unrouted.errors.own(unrouted, { api: 'coding', messages: 'by version' }), { prefix: '/v1' })
  app.register(async (unrouted) => unrouted.errors.own(unrouted, { api: 'coding', messages: 'always' }), { prefix: '/v1/messages' })
  app.get('/v1/responses', reads, refuseUpgrade)
  app.get('/v1/models', readsEither, async ({ headers, id }, reply) => {
    if (!speaksMessages('by version', headers)) return modelList(upstreams.contextWindow())
    reply.header('request-id', id)
    return messagesModelList(upstreams.contextWindow())
  })
  app.get<{ Params: { model: string } }>('/v1/models/:model', readsEither, async ({ params, headers, id }, reply) => {
    if (params.model === '')
      throw new Failure('invalid_request', {
        param: 'model',
        message: 'The address has no name of a model. GET /v1/models lists the models.',
      })
    if (params.model !== MODEL) throw new Failure('model_not_found', { param: 'model' })
    if (!speaksMessages('by version', headers)) return modelEntry(upstreams.contextWindow())
    reply.header('request-id', id)
    return messagesModelEntry(upstreams.contextWindow())
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
