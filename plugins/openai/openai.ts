/** Routes of /v1: the OpenAI-compatible Coding Plan API (specification, section 4.3; `docs/coding.md`). */
import type { FastifyInstance, FastifyRequest, RouteShorthandOptions } from 'fastify'
import fp from 'fastify-plugin'
import type { Static } from 'typebox'
import { Failure } from '../../src/domain/errors.ts'
import { strictValidator } from '../../src/domain/request-validation.ts'
import { listUsage, UsageQuery } from '../../src/tasks/list-usage.ts'
import { speaksMessages } from '../../src/http/message-errors.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { loadedTools } from '../../src/upstream/policy/current-tools.ts'
import { openPromptCounts } from '../../src/upstream/usage/prompt-tokens.ts'
import { checkMessagesBody } from '../../src/upstream/wires/messages/message-checks.ts'
import { MODEL, openModelNames, replaceAlias, withModel } from '../../src/upstream/wires/model-name.ts'
import { readBody } from '../../src/upstream/wires/coding-request-validation.ts'
import type { Members } from '../../src/upstream/wires/allowlist.ts'
import type { WireName } from '../../src/upstream/wires/wire.ts'
import { readCompaction, readRequest } from '../../src/upstream/exchange/read-request.ts'
import type { ExchangeOptions } from '../../src/upstream/exchange/exchange.ts'
import { exchangeFor, readsBy, type CodingRouteOptions } from './coding-route.ts'
import { codexModel } from './codex-catalogue.ts'
import { messagesModelEntry, modelEntry } from './model-list.ts'
import { openaiMetrics } from './openai-metrics.ts'
import { usageBody } from './usage-route.ts'
import { STALLED_CLIENT_MS } from '../../src/http/stalled-clients.ts'
import { openAddressVetting } from './image-urls.ts'

/** 32 MiB: agents send the whole history, with images, in every request. */
const BODY_LIMIT = 32 * 1024 * 1024

export type OpenaiOptions = Partial<Pick<ExchangeOptions, 'keepAliveMs' | 'stalledMs'>> & {
  /** How long an upstream is read after the client disconnected (`onAbort: Drain`). */
  drainMs?: number
  /** How long an upstream is read for its usage once the answer is complete or was stopped. */
  usageMs?: number
}

async function openai(app: FastifyInstance, options: OpenaiOptions): Promise<void> {
  const { upstreams, store, clock } = app
  const isModel = openModelNames(app.config.MODEL_ALIASES)
  const metrics = openaiMetrics(app.metrics.registry, upstreams)
  const exchanges: CodingRouteOptions = {
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
  }

  app.decorateRequest('read', null)
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', (request, payload, done) => {
    app.parseBody(request, payload, 'faithful', done)
  })

  if (app.config.MODEL_ALIASES.length > 0)
    app.addHook('preValidation', (request, _reply, done) => {
      replaceAlias(request.body, isModel)
      done()
    })

  const creates = (wire: WireName, reader = readRequest.bind(null, wire)): RouteShorthandOptions => ({
    bodyLimit: BODY_LIMIT,
    config: { api: 'coding', creates: true, admits: readsBy(reader, upstreams), ...(wire === 'messages' ? { messages: 'always' } : {}) },
  })
  const reads: RouteShorthandOptions = { config: { api: 'coding' } }
  const readsEither: RouteShorthandOptions = { config: { api: 'coding', messages: 'by version' } }
  const countPrompt = openPromptCounts()
  /** The body is not kept meanwhile. */
  const countOf = (request: FastifyRequest, body: Members) => {
    request.body = null
    return countPrompt(request.caller?.key.subscription ?? '', body)
  }
  const counts: RouteShorthandOptions = { bodyLimit: BODY_LIMIT, config: { api: 'coding' } }

  app.post('/v1/chat/completions', creates('chat'), exchangeFor('chat', exchanges))
  app.post('/v1/responses', creates('responses'), exchangeFor('responses', exchanges))
  app.post('/v1/responses/compact', creates('responses', readCompaction), exchangeFor('responses', exchanges))
  const message = exchangeFor('messages', exchanges)
  app.post('/v1/messages', creates('messages'), (request, reply) => message(request, reply.header('request-id', request.id)))
  app.post('/v1/messages/count_tokens', { ...counts, config: { api: 'coding', messages: 'always' } }, async (request, reply) => {
    reply.header('request-id', request.id)
    return { input_tokens: await countOf(request, readPrompt(request.body)) }
  })
  app.post('/v1/responses/input_tokens', counts, async (request) => {
    return { object: 'response.input_tokens', input_tokens: await countOf(request, readBody(withModel(request.body))) }
  })
  app.register(async (unrouted) => unrouted.errors.own(unrouted, { api: 'coding', messages: 'by version' }), { prefix: '/v1' })
  app.register(async (unrouted) => unrouted.errors.own(unrouted, { api: 'coding', messages: 'always' }), { prefix: '/v1/messages' })
  app.get('/v1/responses', reads, refuseUpgrade)
  app.get('/v1/models', readsEither, async ({ headers, id }, reply) => {
    const contextWindow = upstreams.contextWindow()
    if (!speaksMessages('by version', headers))
      return { object: 'list', data: [modelEntry(contextWindow)], models: [codexModel(contextWindow)] }
    reply.header('request-id', id)
    return { data: [messagesModelEntry(contextWindow)], has_more: false, first_id: MODEL, last_id: MODEL }
  })
  app.get<{ Params: { model: string } }>('/v1/models/:model', readsEither, async ({ params, headers, id }, reply) => {
    if (params.model === '')
      throw new Failure('invalid_request', {
        param: 'model',
        message: 'The address names no model. GET /v1/models lists the models.',
      })
    if (!isModel(params.model)) throw new Failure('model_not_found', { param: 'model' })
    if (!speaksMessages('by version', headers)) return modelEntry(upstreams.contextWindow())
    reply.header('request-id', id)
    return messagesModelEntry(upstreams.contextWindow())
  })
  const lists = { ...reads, schema: { querystring: UsageQuery }, validatorCompiler: strictValidator }
  app.get<{ Querystring: Static<typeof UsageQuery> }>('/v1/usage/records', lists, async ({ caller, query }) =>
    listUsage(store, caller?.key.subscription ?? '', query, clock()),
  )
  app.get('/v1/usage', reads, async ({ caller }) =>
    usageBody(await store.subscription(caller?.key.subscription ?? ''), caller?.key ?? null, clock()),
  )
}

/** The body of a request for its count, without the tools that are not loaded yet. */
function readPrompt(value: unknown): Members {
  const body = checkMessagesBody(value)
  return { ...body, tools: loadedTools(body) }
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
  decorators: {
    fastify: ['clock', 'config', 'derivedKeys', 'egress', 'metrics', 'parseBody', 'store', 'upstreams'],
    request: ['bodyShare', 'caller', 'failed', 'reservation', 'startedMs'],
  },
})
