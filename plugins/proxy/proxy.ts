/** Pass-through routes of PROXY_ROUTES: HTTP services behind a key and a plan, by @fastify/http-proxy (`docs/proxy.md`). */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { IncomingMessage } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { Agent, type Dispatcher } from 'undici'
import { disconnectSignal, hasClosed } from '../../src/http/disconnect.ts'
import { Failure } from '../../src/domain/errors.ts'
import type { Api } from '../../src/domain/plans.ts'
import { limitedBody } from './body-limit.ts'
import { admit, type Charge } from './pass-through-charge.ts'
import { keyOf, withoutKey } from './client-key.ts'
import { answerHeaders, requestHeaders } from './headers.ts'
import type { Match, RouteTable } from './route-table.ts'
import { watchRoutes } from './route-watch.ts'
import type { ProxyRoute } from './routes-file.ts'
import { asksForWebSocket, checkHandshake, websocketOptions } from './websocket.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The pass-through route of this request. Null on other routes. */
    proxied: { route: ProxyRoute; charge: Charge | null } | null
  }
}

const CONNECT_MS = 5_000
const METHODS = ['DELETE', 'GET', 'HEAD', 'PATCH', 'POST', 'PUT', 'OPTIONS']

export type ProxyOptions = {
  file: string
  /** How often the file is read again. */
  pollMs?: number
}

async function proxy(scope: FastifyInstance, { file, pollMs = 1_000 }: ProxyOptions): Promise<void> {
  const matches = new WeakMap<IncomingMessage, Match>()
  const table = watchRoutes(scope, file, pollMs)
  constrain(scope, table, matches)
  // Only handshakes for routes that admit WebSocket leave HTTP. To all other requests the Upgrade header means nothing.
  Object.assign(scope.server, {
    shouldUpgradeCallback: (request: IncomingMessage) => asksForWebSocket(request) && table(request.url ?? '')?.route.websocket === true,
  })

  scope.decorateRequest('proxied', null)
  scope.removeAllContentTypeParsers()
  scope.addHook('preParsing', async (request, _reply, payload) =>
    limitedBody(request, payload, matches.get(request.raw)?.route.maxBodyBytes ?? 0),
  )
  scope.addHook('preValidation', async (request) => {
    const match = matches.get(request.raw)
    if (!match) throw new Failure('not_found')
    request.raw.url = checked(request, match)
    request.proxied = { route: match.route, charge: null }
    request.log.setBindings({ proxied: match.route.prefix })
  })
  scope.addHook('preHandler', async (request, reply) => {
    const proxied = proxiedOf(request)
    proxied.charge = await admit(scope, request, reply, proxied.route.price)
    // For the log and the metrics: the handshake is answered outside of Fastify.
    if (asksForWebSocket(request.raw)) reply.raw.statusCode = 101
  })
  const agent = new Agent({ allowH2: false, connect: { timeout: CONNECT_MS, rejectUnauthorized: true } })
  scope.addHook('onClose', () => agent.destroy())
  // Loaded by need: most installations have no pass-through route.
  const { default: httpProxy } = await import('@fastify/http-proxy')
  // The library types requests of all versions of HTTP.
  for (const api of ['media', 'coding'] as const)
    scope.register(httpProxy, proxyOptions(api, agent, scope.config.BRAND.toLowerCase()) as never)
}

/** The strategy by which the router finds these routes. A path that is not in the file is answered as if there were no such route. */
const STRATEGY = 'passThrough'

function constrain(scope: FastifyInstance, table: RouteTable, matches: WeakMap<IncomingMessage, Match>): void {
  scope.addConstraintStrategy({
    name: STRATEGY,
    storage: () => {
      const handlers = new Map<unknown, never>()
      return { get: (api) => handlers.get(api) ?? null, set: (api, handler) => void handlers.set(api, handler as never) }
    },
    validate: () => {},
    deriveConstraint(request: IncomingMessage) {
      const match = table(request.url ?? '')
      if (match) matches.set(request, match)
      return match?.route.api
    },
  })
}

/** The path that the service gets. Throws the failure of a request that the route does not take. */
function checked(request: FastifyRequest, { route, path }: Match): string {
  if (route.plans && !route.plans.has(request.caller?.key.subscription ?? '')) throw new Failure('plan_not_allowed')
  if (asksForWebSocket(request.raw)) {
    if (!route.websocket)
      throw new Failure('upgrade_required', {
        message: 'WebSocket is not offered here.',
        headers: { upgrade: 'HTTP/1.1', connection: 'close' },
      })
    checkHandshake(request)
  }
  if (path === null)
    throw new Failure('invalid_request', {
      message: 'The path is ambiguous: leave out dot segments, empty segments, backslashes and encoded slashes.',
    })
  return withoutKey(path, keyOf(request))
}

function proxiedOf({ proxied }: FastifyRequest): NonNullable<FastifyRequest['proxied']> {
  if (!proxied) throw new Failure('not_found')
  return proxied
}

function proxyOptions(api: Api, agent: Agent, brand: string) {
  const signals = new AsyncLocalStorage<AbortSignal>()
  const sent = (request: FastifyRequest, headers: FastifyRequest['headers']) =>
    requestHeaders(headers, request, proxiedOf(request).route, brand)
  return {
    upstream: '',
    constraints: { [STRATEGY]: api },
    routes: ['/*'],
    httpMethods: METHODS,
    config: {
      api,
      creates: true,
      streamed: true,
      ...(api === 'coding'
        ? {
            admits: (request: FastifyRequest) => ({ promptBytes: 0, maxOutputTokens: tokensOf(proxiedOf(request).route) }),
            storedFirst: true,
          }
        : {}),
    },
    // Verifies certificates, and stops when the client disconnects; the library's own agent does neither.
    undici: {
      request: (options: Dispatcher.RequestOptions, done: () => void) =>
        agent.request({ ...options, signal: signals.getStore() ?? null } as never, done),
    } as never,
    retryMethods: [],
    disableCache: true,
    disableRequestLogging: true,
    internalRewriteLocationHeader: false,
    handler: (request: FastifyRequest, reply: FastifyReply, path: string, options: object) =>
      signals.run(disconnectSignal(reply.raw), () => reply.from(path, { ...options, timeout: proxiedOf(request).route.timeoutMs })),
    replyOptions: {
      getUpstream: (request: FastifyRequest) => proxiedOf(request).route.upstream,
      rewriteRequestHeaders: sent,
      rewriteHeaders: (headers: FastifyRequest['headers'], request?: FastifyRequest) =>
        request ? answerHeaders(headers, proxiedOf(request).route, brand) : headers,
      onResponse(request: FastifyRequest, reply: FastifyReply, answer: { stream?: unknown }) {
        proxiedOf(request).charge?.(reply.statusCode < 500 ? 'capture' : 'void')
        reply.send(answer.stream)
      },
      onError(reply: FastifyReply, { error }: { error: Error }) {
        proxiedOf(reply.request).charge?.('void')
        // A client that has left is no failure of the service.
        if (hasClosed(reply.raw)) reply.hijack()
        else reply.send(failureOf(error))
      },
    },
    ...websocketOptions({
      headers: (request) => sent(request, request.headers),
      opened: (request) => proxiedOf(request).charge?.('capture'),
      silenceMs: (request) => proxiedOf(request).route.timeoutMs,
      share: (request) => request.server.openBodyShare(request.caller?.key.tenant ?? ''),
    }),
  }
}

function tokensOf({ price }: ProxyRoute): number {
  return price.api === 'coding' ? price.tokens : 0
}

/** What the service did instead of an answer. The cause is only logged: it names the service. */
function failureOf(error: Error & { statusCode?: number }): Failure {
  const { cause = error } = error
  if (cause instanceof Failure) return cause
  return new Failure(error.statusCode === 504 ? 'gateway_timeout' : 'bad_gateway', { cause })
}

export default fp(proxy, {
  name: 'proxy',
  fastify: '5.x',
  encapsulate: true,
  dependencies: ['errors', 'auth', 'request-body', 'metering'],
  decorators: { fastify: ['config', 'tasks'], request: ['caller', 'reservation', 'span'] },
})
