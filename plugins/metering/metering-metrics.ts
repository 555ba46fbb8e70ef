/** Metrics of admission and settlement: refusals, open reservations, tokens, swept reservations. */
import type { Registry } from 'prom-client'
import type { Usage } from '../../src/domain/token-windows.ts'
import { metersOf } from '../../src/telemetry/metrics.ts'

export type MeteringMetrics = {
  refused(outcome: string): void
  /** A request that was sent by a lease was admitted again, or refused. */
  admittedAgain(isAdmitted: boolean): void
  open(tokens: number): void
  extended(tokens: number): void
  settled(reserved: number, usage: Usage | null, tenant: string): void
  swept(counts: { expired: number; released: number }): void
}

const WINDOWS: Record<string, string> = { weekly_full: 'weekly', session_full: 'session', key_full: 'key' }

/** Registers the metrics. `byTenant` adds the label `tenant` to the token counter: one set of series per tenant. */
export function meteringMetrics(registry: Registry, byTenant: boolean): MeteringMetrics {
  const { counter, gaugedBy } = metersOf(registry)
  const refusals = counter('tollgate_window_refusals_total', 'Requests refused because a token window was full.', 'window')
  const again = counter(
    'tollgate_readmissions_total',
    'Requests that were sent by the lease of a gateway, and decided again because their plan had changed meanwhile.',
    'outcome',
  )
  for (const outcome of ['admitted', 'refused']) again.inc({ outcome }, 0)
  // Plain numbers, read when they are exported: each request changes both twice.
  let open = 0
  let reserved = 0
  gaugedBy('tollgate_reservations_open', 'Coding requests of this process that are admitted and not settled.', [], (gauge) =>
    gauge.set(open),
  )
  gaugedBy('tollgate_reserved_tokens', 'Tokens reserved by coding requests of this process.', [], (gauge) => gauge.set(reserved))
  const tokens = counter(
    'tollgate_coding_tokens_total',
    'Settled tokens of the Coding Plan API.',
    ...(byTenant ? ['kind', 'tenant'] : ['kind']),
  )
  const swept = counter('tollgate_reservations_swept_total', 'Reservations settled by the sweep.', 'reason')
  return {
    refused: (outcome) => {
      const window = WINDOWS[outcome]
      if (window) refusals.inc({ window })
    },
    admittedAgain: (isAdmitted) => again.inc({ outcome: isAdmitted ? 'admitted' : 'refused' }),
    open: (amount) => {
      open++
      reserved += amount
    },
    extended: (amount) => void (reserved += amount),
    settled: (amount, usage, tenant) => {
      open--
      reserved -= amount
      if (!usage) return
      const labels = byTenant ? { tenant } : {}
      tokens.inc({ ...labels, kind: 'input' }, usage.input - usage.cachedInput)
      tokens.inc({ ...labels, kind: 'cached_input' }, usage.cachedInput)
      tokens.inc({ ...labels, kind: 'output' }, usage.output)
    },
    swept: ({ expired, released }) => {
      swept.inc({ reason: 'dead_gateway' }, expired)
      swept.inc({ reason: 'unknown_admission' }, released)
    },
  }
}
