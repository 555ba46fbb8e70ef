/** Connection pool per upstream: connections, TLS, URL, API key and the headers of every request. */
import { Pool } from 'undici'
import { openBreaker, type Breaker } from '../selection/circuit-breaker.ts'
import type { UpstreamSettings } from '../upstreams-file.ts'
import { PATHS, type Target, type WireName } from '../wires/wire.ts'

/** An upstream in use. */
export type Upstream = {
  settings: UpstreamSettings
  breaker: Breaker
  pool: Pool
  target: Target
  path(wire: WireName): string
  headers: Record<string, string>
}

/** Opens the pool of one upstream. `baseUrl` and `apiKey` are arguments because the built-in echo gets both when it starts. */
export function openUpstream(settings: UpstreamSettings, baseUrl: string, apiKey: string | null): Upstream {
  const url = new URL(baseUrl)
  return {
    settings,
    breaker: openBreaker(settings.breaker),
    pool: new Pool(url.origin, {
      allowH2: false,
      pipelining: 1,
      keepAliveTimeout: 30_000,
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: { timeout: settings.timeouts.connectMs, rejectUnauthorized: true },
    }),
    target: { model: settings.model, maxTokensField: settings.maxTokensField ?? null },
    path: (wire) => `${url.pathname.replace(/\/$/, '')}${PATHS[wire]}${url.search}`,
    headers: {
      ...(apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }),
      'user-agent': 'tollgate',
      ...settings.headers,
      'content-type': 'application/json',
      'accept-encoding': 'identity',
    },
  }
}
