/** The claims of one process that have no outcome yet, and the subscriptions whose record was too busy for a claim. */

/** A subscription with a busy record is passed over for this long: otherwise its claims would occupy the free slots of a worker all the time. */
const BUSY_MS = 15_000

export type ClaimsInProgress = {
  /** Their number; each may start a task. */
  count(): number
  /** Whether a claim of the subscription is in progress. */
  has(subscription: string): boolean
  /** Whether the record of the subscription was too busy shortly before `now`. */
  isBusy(subscription: string, now: number): boolean
  /** Subscriptions to pass over at `now`: with a claim in progress, or with a busy record. */
  passedOver(now: number): Set<string>
  /** Adds a claim until it has ended. It must not reject. */
  track(subscription: string, claim: Promise<void>): Promise<void>
  /** The record of the subscription was too busy at `now`. */
  busy(subscription: string, now: number): void
  /** Resolves when no claim is in progress. */
  ended(): Promise<void>
}

export function openClaims(): ClaimsInProgress {
  const inProgress = new Map<Promise<void>, string>()
  const busyUntil = new Map<string, number>()
  return {
    count: () => inProgress.size,
    has: (subscription) => [...inProgress.values()].includes(subscription),
    isBusy: (subscription, now) => (busyUntil.get(subscription) ?? 0) > now,
    passedOver(now) {
      for (const [subscription, until] of busyUntil) if (until <= now) busyUntil.delete(subscription)
      return new Set([...inProgress.values(), ...busyUntil.keys()])
    },
    track(subscription, claim) {
      const tracked = claim.then(() => void inProgress.delete(tracked))
      inProgress.set(tracked, subscription)
      return tracked
    },
    busy: (subscription, now) => void busyUntil.set(subscription, now + BUSY_MS),
    async ended() {
      await Promise.all(inProgress.keys())
    },
  }
}
