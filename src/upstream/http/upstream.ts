/** An upstream in use: its connections, its breaker, and the head of every request with its URL and API key. */
import { sentBetas } from '../policy/betas.ts'
import type { RequestPolicy } from '../policy/request-policy.ts'
import { openBreaker, type Breaker } from '../selection/circuit-breaker.ts'
import type { UpstreamSettings } from '../upstreams-file.ts'
import type { TemplateSets } from '../sse/event-templates.ts'
import { PATHS, type Target, type UpstreamCall, type WireName } from '../wires/wire.ts'
import { openConnectionPool, type ConnectionPool } from './connection-pool.ts'

/** An upstream in use. */
export type Upstream = {
  settings: UpstreamSettings
  breaker: Breaker
  pool: ConnectionPool
  target: Target
  /** What its streams have in common. */
  templates: TemplateSets
  /** The request line and the fields, each with its line end. */
  head(call: Pick<UpstreamCall, 'wire' | 'stream' | 'betas'>): string
}

/** Opens the pool of one upstream. `baseUrl` and `apiKey` are arguments because the built-in echo gets both when it starts. */
export function openUpstream(settings: UpstreamSettings, baseUrl: string, apiKey: string | null): Upstream {
  const url = new URL(baseUrl)
  const policy = { allow: new Set(settings.allow), drop: new Set(settings.drop), force: settings.force }
  return {
    settings,
    breaker: openBreaker(settings.breaker),
    pool: openConnectionPool(url, settings.timeouts.connectMs),
    target: {
      origin: `${settings.name} ${settings.baseUrl} ${settings.model}`,
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
  const headOf = (wire: WireName, accept: string): string => {
    const fields = Object.entries({ host: url.host, ...credentials(wire, url, apiKey), ...common, accept })
    const path = `${url.pathname.replace(/\/$/, '')}${PATHS[wire]}${url.search}`
    return `POST ${path} HTTP/1.1\r\n${fields.map(([name, value]) => `${name}: ${value}\r\n`).join('')}`
  }
  const headsOf = (wire: WireName) => ({ json: headOf(wire, 'application/json'), stream: headOf(wire, 'text/event-stream') })
  const heads = { chat: headsOf('chat'), responses: headsOf('responses'), messages: headsOf('messages') }
  return ({ wire, stream, betas = [] }) => {
    const head = heads[wire][stream ? 'stream' : 'json']
    const sent = sentBetas(betas, policy)
    return sent === '' ? head : `${head}anthropic-beta: ${sent}\r\n`
  }
}

/**
 * Servers of the Messages wire read the key from either header. Anthropic's own take a `Bearer` for a token of another kind: they get
 * `x-api-key` alone.
 */
function credentials(wire: WireName, { hostname }: URL, apiKey: string | null): Record<string, string> {
  const version: Record<string, string> = wire === 'messages' ? { 'anthropic-version': '2023-06-01' } : {}
  if (apiKey === null) return version
  const bearer = { authorization: `Bearer ${apiKey}` }
  if (wire !== 'messages') return bearer
  return { ...version, 'x-api-key': apiKey, ...(/(?:^|\.)anthropic\.com$/.test(hostname) ? {} : bearer) }
}
