/** Tenants of the scenario, with plans small enough that allowance, queue and period run out. */
import type { Terms } from '../../../src/domain/plans.ts'
import type { Applying } from '../plan-edits.ts'

export type Account = { tenant: string; subscription: string; keyId: string; keyVersionId: string; cap: number | null; terms: Terms }

/** The kinds and operations that workers take. */
export const KINDS = ['image', 'video', 'upscale']
export const T0 = Date.UTC(2026, 0, 5)

function accountOf(tenant: string, cap: number | null, allowance: number, maxConcurrentTasks: number): Account {
  const media = { allowance, period: { unit: 'days', count: 1 } as const, maxConcurrentTasks, maxQueuedTasks: 5, attempts: 2, prices: [] }
  const terms: Terms = { displayName: 'Studio', requestsPerMinute: 100_000, maxKeys: 5, rotationOverlapMs: 0, media, coding: null }
  return { tenant, subscription: `${tenant}/studio`, keyId: `key-${tenant}`, keyVersionId: `key-${tenant}-1`, cap, terms }
}

export const ACCOUNTS = [accountOf('acme', null, 1_000, 2), accountOf('beta', 600, 800, 1)]

export function planOf({ tenant }: Account, terms: Terms): Applying {
  const plan = { uid: `plan-${tenant}`, createdAt: T0, generation: 1 }
  return { op: 'applyPlan', plan, product: 'Media', terms, state: 'Active', activeFrom: null, activeUntil: null, verdict: null }
}
