/**
 * A circuit breaker for one upstream: after so many failures in a row it is left alone for a while, then one request tries whether it is
 * back.
 */
export type BreakerOptions = { failures: number; windowSeconds: number; openSeconds: number }

export type Breaker = {
  /** Whether a request may go there now. Half open, only the first to ask may; it must tell how it went. */
  admit(now: number): boolean
  succeeded(): void
  failed(now: number): void
  /** The request that was let in left before anything was known of the upstream. */
  left(): void
  state(now: number): 'closed' | 'open' | 'half_open'
  /** Milliseconds until it would be tried again. */
  waitMs(now: number): number
}

/**
 * Times are epoch milliseconds, given by the caller. A success forgets the failures before it, so that rare errors of a busy upstream open
 * nothing.
 */
export function openBreaker({ failures, windowSeconds, openSeconds }: BreakerOptions): Breaker {
  let recent: number[] = []
  let openUntil = 0
  let probing = false

  const state = (now: number) => (openUntil === 0 ? 'closed' : now < openUntil ? 'open' : 'half_open')

  return {
    state,
    waitMs: (now) => Math.max(0, openUntil - now),
    admit(now) {
      const at = state(now)
      if (at === 'closed') return true
      if (at === 'open' || probing) return false
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
    left() {
      probing = false
    },
  }
}
