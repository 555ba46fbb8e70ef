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

export function termsOf(edited: Partial<CodingTerms>): Terms {
  return { displayName: 'Code', requestsPerMinute: 100_000, maxKeys: 5, rotationOverlapMs: 0, media: null, coding: { ...coding, ...edited } }
}

export const first: Applying = {
  op: 'applyPlan', plan: { uid: 'plan-code', createdAt: T0, generation: 1 }, product: 'Coding', terms: termsOf({}), state: 'Active',
  activeFrom: null, activeUntil: null, verdict: null,
}
