/**
 * Circuit breaker per upstream: consecutive failures open it, after a while it is half open and admits one probe, whose outcome closes or
 * reopens it.
 */
export type BreakerOptions = { failures: number; windowSeconds: number; openSeconds: number }

export type Breaker = {
  /** Whether a request may be sent now. Half open, only the first caller may, and it must report the outcome. */
  admit(now: number): boolean
  succeeded(): void
  failed(now: number): void
  /** The admitted request was cancelled before its outcome said anything about the upstream. */
  cancelled(): void
  /** `open` also during a probe, which may take minutes at an upstream that hangs. */
  state(now: number): 'closed' | 'open' | 'half_open'
  /** Milliseconds until it is half open. */
  waitMs(now: number): number
}

/**
 * Times are epoch milliseconds, given by the caller. A success resets the count, so that rare errors of a busy upstream do not open the
 * breaker.
 */
export function openBreaker({ failures, windowSeconds, openSeconds }: BreakerOptions): Breaker {
  let recent: number[] = []
  let openUntil = 0
  let probing = false

  const state = (now: number) => (openUntil === 0 ? 'closed' : now < openUntil || probing ? 'open' : 'half_open')

  return {
    state,
    waitMs: (now) => Math.max(0, openUntil - now),
    admit(now) {
      const current = state(now)
      if (current === 'closed') return true
      if (current === 'open') return false
      probing = true
      return true
    },
    succeeded() {
      recent = []
      openUntil = 0
      probing = false
    },
    failed(now) {
      recent = [...recent.filter((at) => at > now - windowSeconds * 1000), now].slice(-failures)
      if (recent.length >= failures || probing) openUntil = now + openSeconds * 1000
      probing = false
    },
    cancelled() {
      probing = false
    },
  }
}
