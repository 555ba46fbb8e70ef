/** Connection pool per upstream: connections, TLS, URL, API key and the headers of every request. */
import { subscribe } from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import { buildConnector, Pool } from 'undici'
import { dropContinue } from '../../http/interim-answers.ts'
import { sentBetas } from '../policy/betas.ts'
import type { RequestPolicy } from '../policy/request-policy.ts'
import { openBreaker, type Breaker } from '../selection/circuit-breaker.ts'
import type { UpstreamSettings } from '../upstreams-file.ts'
import type { TemplateSets } from '../sse/event-templates.ts'
import { PATHS, type Target, type UpstreamCall, type WireName } from '../wires/wire.ts'

/** Path and headers of a request, names and values in turn. */
export type RequestHead = { path: string; headers: string[] }

/** Where a request is sent: over a kept connection or a new one, or over one of its own. */
export type Connections = 'pool' | 'unpooled'

/** An upstream in use. */
export type Upstream = {
  settings: UpstreamSettings
  breaker: Breaker
  pool: Pool
  /** A connection of its own for each request. */
  unpooled: Pool
  /** Finishes the calls in flight. */
  drain(): Promise<void>
  /** Ends the calls in flight. */
  destroy(): Promise<void>
  target: Target
  /** What its streams have in common. */
  templates: TemplateSets
  head(call: Pick<UpstreamCall, 'wire' | 'stream' | 'betas'>): RequestHead
}

/** Opens the pool of one upstream. `baseUrl` and `apiKey` are arguments because the built-in echo gets both when it starts. */
export function openUpstream(settings: UpstreamSettings, baseUrl: string, apiKey: string | null): Upstream {
  const url = new URL(baseUrl)
  const options = {
    allowH2: false,
    keepAliveTimeout: 30_000,
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: connector(settings.timeouts.connectMs),
  }
  const pool = new Pool(url.origin, { ...options, pipelining: 1 })
  const unpooled = new Pool(url.origin, { ...options, pipelining: 0 })
  const both = async (end: (one: Pool) => Promise<void>) =>
    void (await Promise.all([pool, unpooled].map((one) => end(one).catch(() => {}))))
  const policy = { allow: new Set(settings.allow), drop: new Set(settings.drop), force: settings.force }
  return {
    settings,
    breaker: openBreaker(settings.breaker),
    pool,
    unpooled,
    drain: () => both((one) => one.close()),
    destroy: () => both((one) => one.destroy()),
    target: {
      model: settings.model,
      maxTokensField: settings.maxTokensField ?? null,
      policy,
    },
    templates: new Map(),
    head: requestHeads(url, apiKey, settings.headers, policy),
  }
}

/** They differ by wire and by the form of the answer alone, so that each is made once. */
function requestHeads(url: URL, apiKey: string | null, additional: Record<string, string>, policy: RequestPolicy): Upstream['head'] {
  const common = {
    'user-agent': 'tollgate',
    ...Object.fromEntries(Object.entries(additional).map(([name, value]) => [name.toLowerCase(), value])),
    'content-type': 'application/json',
    'accept-encoding': 'identity',
  }
  const headOf = (wire: WireName, accept: string): RequestHead => ({
    path: `${url.pathname.replace(/\/$/, '')}${PATHS[wire]}${url.search}`,
    headers: Object.entries({ ...credentials(wire, url, apiKey), ...common, accept }).flat(),
  })
  const headsOf = (wire: WireName) => ({ json: headOf(wire, 'application/json'), stream: headOf(wire, 'text/event-stream') })
  const heads = { chat: headsOf('chat'), responses: headsOf('responses'), messages: headsOf('messages') }
  return ({ wire, stream, betas = [] }) => {
    const head = heads[wire][stream ? 'stream' : 'json']
    const sent = sentBetas(betas, policy)
    return sent === '' ? head : { ...head, headers: [...head.headers, 'anthropic-beta', sent] }
  }
}

/** Servers of the Messages wire read the key from either header. Anthropic's own take a `Bearer` for a token of another kind: they get `x-api-key` alone. */
function credentials(wire: WireName, { hostname }: URL, apiKey: string | null): Record<string, string> {
  const version: Record<string, string> = wire === 'messages' ? { 'anthropic-version': '2023-06-01' } : {}
  if (apiKey === null) return version
  const bearer = { authorization: `Bearer ${apiKey}` }
  if (wire !== 'messages') return bearer
  return { ...version, 'x-api-key': apiKey, ...(/(?:^|\.)anthropic\.com$/.test(hostname) ? {} : bearer) }
}

/** Of a connection. `receivedBefore`: the bytes that it had received when the last request was sent on it. */
type Exchange = { receivedBefore: number; expectAnswer: () => void }
const exchanges = new WeakMap<Socket, Exchange>()
subscribe('undici:client:sendHeaders', (message) => {
  const { socket } = message as { socket: Socket }
  const exchange = exchanges.get(socket)
  if (!exchange) return
  exchange.receivedBefore = socket.bytesRead
  exchange.expectAnswer()
})

/** Errors of connections that had been idle, such as one that the server closes while we send on it (RFC 9112, section 9.3.1). */
const errorsOfIdle = new WeakSet<Error>()

/** Whether a request failed with a connection that had served another one, before any byte of an answer. It says nothing about the state of the upstream. */
export function isErrorOfIdleConnection(error: unknown): boolean {
  return error instanceof Error && errorsOfIdle.has(error)
}

function connector(timeoutMs: number): buildConnector.connector {
  const connect = buildConnector({ timeout: timeoutMs, rejectUnauthorized: true, allowH2: false })
  return (options, callback) =>
    connect(options, (...result) => {
      const [, socket] = result
      if (socket) follow(socket)
      callback(...result)
    })
}

function follow(socket: Socket): void {
  const exchange: Exchange = { receivedBefore: 0, expectAnswer: dropContinue(socket) }
  exchanges.set(socket, exchange)
  socket.once('error', (error) => {
    if (exchange.receivedBefore > 0 && socket.bytesRead === exchange.receivedBefore) errorsOfIdle.add(error)
  })
}
