/** The Coding plan of the scenario, with windows small enough to fill up. */
import type { Terms } from '../../../src/domain/plans.ts'

export const T0 = Date.UTC(2026, 0, 5)

export const SUBSCRIPTION = 'acme/code'

const coding = {
  sessionTokens: 9_000,
  sessionMs: 45_000,
  weeklyTokens: 20_000,
  weights: { input: 1000, cachedInput: 100, output: 2000 },
  onAbort: 'Cancel' as const,
  maxConcurrentRequests: 4,
  maxOutputTokens: 1_000,
}
export const terms: Terms = { displayName: 'Code', requestsPerMinute: 100_000, maxKeys: 5, rotationOverlapMs: 0, media: null, coding }
