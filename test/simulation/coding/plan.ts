/** The Coding plan of the scenario, with windows small enough to fill up. */
import type { CodingTerms, Terms } from '../../../src/domain/plans.ts'
import type { Applying } from '../plan-edits.ts'

export const T0 = Date.UTC(2026, 0, 5)

export const SUBSCRIPTION = 'acme/code'

const coding: CodingTerms = {
  sessionTokens: 9_000,
  sessionMs: 45_000,
  weeklyTokens: 20_000,
  weights: { input: 1000, cachedInput: 100, output: 2000 },
  onAbort: 'Cancel',
  maxConcurrentRequests: 4,
  maxOutputTokens: 1_000,
}

/** How many times larger a plan is whose gateways take leases: those are a part of what is left. */
export const LEASED_TIMES = 5

export function termsOf(leases: boolean, edited: Partial<CodingTerms> = {}): Terms {
  const times = leases ? LEASED_TIMES : 1
  const { sessionTokens, weeklyTokens, maxConcurrentRequests } = coding
  const windows = { sessionTokens: times * sessionTokens, weeklyTokens: times * weeklyTokens, maxConcurrentRequests: times * maxConcurrentRequests }
  return { displayName: 'Code', requestsPerMinute: 100_000, maxKeys: 5, rotationOverlapMs: 0, media: null, coding: { ...coding, ...windows, ...edited } }
}

export function firstOf(leases: boolean): Applying {
  return {
    op: 'applyPlan', plan: { uid: 'plan-code', createdAt: T0, generation: 1 }, product: 'Coding', terms: termsOf(leases), state: 'Active',
    activeFrom: null, activeUntil: null, verdict: null,
  }
}
