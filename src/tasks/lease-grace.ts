/** Grace for the leases of runs after an outage of the store: living workers could not renew them, and get the time of one lease to do so. */

export type LeaseGrace = {
  /** The store answered this process at `now`. True during the grace: expired leases are not taken back. */
  isDue(now: number): boolean
}

/**
 * The grace as one process observes it: it begins when the store answers after a gap of a third of a lease, in which a renewal is missed, and of three passes, which come
 * every `passMs`; it lasts for a lease. `reachedAt`: when the store is known to have been reachable last; without it, a process that has just started cannot know.
 * Times are monotonic: a clock that leaps is no outage.
 */
export function openLeaseGrace(leaseMs: number, passMs: number, reachedAt = -Infinity): LeaseGrace {
  const gapMs = Math.max(leaseMs / 3, 3 * passMs)
  let lastMs = reachedAt
  let untilMs = -Infinity
  return {
    isDue(now) {
      if (now - lastMs > gapMs) untilMs = now + leaseMs
      lastMs = now
      return now < untilMs
    },
  }
}
