/** Tenants of the scenario, with plans small enough that allowance, queue and period run out. */
import type { Terms } from '../../../src/domain/plans.ts'
import type { Command } from '../../../src/domain/subscription/commands.ts'

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

type Applying = Extract<Command, { op: 'applyPlan' }>

export function planOf(account: Account, generation: number, terms: Terms, state: Applying['state'] = 'Active'): Applying {
  const plan = { uid: `plan-${account.tenant}`, createdAt: T0, generation }
  return { op: 'applyPlan', plan, product: 'Media', terms, state, activeFrom: null, activeUntil: null, verdict: null }
}
