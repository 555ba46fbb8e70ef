/** An upstream in use: its connections, its breaker, and what every request to it carries. */
import { Pool } from 'undici'
import { openBreaker, type Breaker } from './circuit-breaker.ts'
import type { Declared } from './upstreams-file.ts'
import { PATHS, type Target, type WireName } from '../wires/wire.ts'

export type Running = {
  declared: Declared
  breaker: Breaker
  pool: Pool
  target: Target
  path(wire: WireName): string
  headers: Record<string, string>
}

/** Opens the pool of one upstream. `baseUrl` and `key` are given apart, because those of the built-in one are made when it starts. */
export function run(declared: Declared, baseUrl: string, key: string | null): Running {
  const url = new URL(baseUrl)
  return {
    declared,
    breaker: openBreaker(declared.breaker),
    pool: new Pool(url.origin, {
      allowH2: false,
      pipelining: 1,
      keepAliveTimeout: 30_000,
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: { timeout: declared.timeouts.connectMs, rejectUnauthorized: true },
    }),
    target: { model: declared.model, maxTokensField: declared.maxTokensField ?? null },
    path: (wire) => `${url.pathname.replace(/\/$/, '')}${PATHS[wire]}${url.search}`,
    headers: {
      ...(key === null ? {} : { authorization: `Bearer ${key}` }),
      'user-agent': 'tollgate',
      ...declared.headers,
      'content-type': 'application/json',
      'accept-encoding': 'identity',
    },
  }
}

/**
 * Every upstream of a wire in the order of asking: lower priority numbers first, within one at random by weight. `random` gives numbers in
 * [0, 1).
 */
export function inOrder(all: Iterable<Running>, wire: WireName, random: () => number): Running[] {
  return [...all]
    .filter(({ declared }) => declared.wire === wire || declared.wire === 'both')
    .map((one) => ({ one, priority: one.declared.priority, draw: -Math.log(1 - random()) / one.declared.weight }))
    .sort((a, b) => a.priority - b.priority || a.draw - b.draw)
    .map(({ one }) => one)
}
