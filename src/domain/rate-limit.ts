/**
 * Rate limit of requests per minute: GCRA (ITU-T I.371) over one stored number, the theoretical arrival time. Exact, because the
 * number lives in the subscription's record and changes with it.
 */
import { putNewest } from './long-lived-maps.ts'
import { overLimit } from './errors.ts'
import type { Limit } from './limits.ts'

export type Rate = { tat: number }

export type RateDecision = { allowed: true; rate: Rate } | { allowed: false; retryAfterMs: number }

/** Burst size: a sixth of the requests per minute, at least ten. */
export function burstOf(requestsPerMinute: number): number {
  return Math.max(10, Math.floor(requestsPerMinute / 6))
}

/** Takes one request at `now` (ms) out of `requestsPerMinute`. A refusal changes nothing and returns the wait in ms. */
export function takeOne(rate: Rate, requestsPerMinute: number, now: number): RateDecision {
  const intervalMs = 60_000 / requestsPerMinute
  const tat = Math.max(rate.tat, now) + intervalMs
  const excessMs = tat - now - burstOf(requestsPerMinute) * intervalMs
  if (excessMs > 1e-6) return { allowed: false, retryAfterMs: Math.ceil(excessMs) }
  return { allowed: true, rate: { tat } }
}

/** The debt under another rate or after the clock was set back: never more than that of its whole burst, so that both hold at once. */
export function underRate(rate: Rate, requestsPerMinute: number, now: number): Rate {
  return { tat: Math.min(rate.tat, now + (burstOf(requestsPerMinute) * 60_000) / requestsPerMinute) }
}

/** Remaining burst at `now`, and the seconds until it is full again. */
export function rateLeft(rate: Rate, requestsPerMinute: number, now: number): { remaining: number; resetSeconds: number } {
  const intervalMs = 60_000 / requestsPerMinute
  const usedMs = Math.max(0, rate.tat - now)
  const burst = burstOf(requestsPerMinute)
  return { remaining: Math.max(0, Math.floor(burst - usedMs / intervalMs + 1e-6)), resetSeconds: Math.ceil(usedMs / 1000) }
}

/** `RateLimit` and `RateLimit-Policy` of a plan's rate, after a request. */
export function rateHeaders(rate: Rate, requestsPerMinute: number, now: number): Record<string, string> {
  const { remaining, resetSeconds } = rateLeft(rate, requestsPerMinute, now)
  return {
    'ratelimit-policy': `"plan";q=${requestsPerMinute};w=60;burst=${burstOf(requestsPerMinute)}`,
    ratelimit: `"plan";r=${remaining};t=${resetSeconds}`,
  }
}

/**
 * Returns a function that takes one request of a name, at `now` (ms), out of `requestsPerMinute`. Above `namesMax` the name whose last request,
 * counted or refused, is the oldest is forgotten.
 */
export function rememberRates(namesMax: number): (name: string, requestsPerMinute: number, now: number) => RateDecision {
  const rates = new Map<string, Rate>()
  return (name, requestsPerMinute, now) => {
    // A clock that was set back may not leave a name refused for longer than its burst.
    const rate = underRate(rates.get(name) ?? { tat: 0 }, requestsPerMinute, now)
    const decision = takeOne(rate, requestsPerMinute, now)
    putNewest(rates, name, decision.allowed ? decision.rate : rate, namesMax)
    return decision
  }
}

/** Returns a function that counts one request of a name at `now` (ms), and throws `rate_limited` above `requestsPerMinute`, by that limit. */
export function openRates(limit: Limit, requestsPerMinute: number, namesMax: number): (name: string, now: number) => void {
  const take = rememberRates(namesMax)
  return (name, now) => {
    const decision = take(name, requestsPerMinute, now)
    if (!decision.allowed) throw overLimit(limit, { retryAfterSeconds: Math.max(1, Math.ceil(decision.retryAfterMs / 1000)) })
  }
}
