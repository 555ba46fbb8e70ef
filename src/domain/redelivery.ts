/** Redelivery of webhooks: one more attempt outside the retry schedule (`docs/webhooks.md`, "Redelivery"). Pure. */
import type { Delivery, DeliveryAttempt } from './task.ts'

/** Attempts outside the schedule that one delivery may have. */
const REDELIVERIES_MAX = 10

/** Deliveries that one replay may examine; the cursor of its answer leads to the rest. */
export const REPLAY_MAX = 500

/** Longest range of a replay. */
export const REPLAY_RANGE_MS = 31 * 24 * 3_600_000

export type Redelivery =
  /** The changed delivery: due now. */
  | { outcome: 'due'; delivery: Delivery & Required<Pick<Delivery, 'redelivery'>> }
  /** An attempt is due or under way already, or the first one is still to come: nothing changes. */
  | { outcome: 'coming' }
  /** It had `REDELIVERIES_MAX` already. */
  | { outcome: 'exhausted' }

/** Makes a delivery due now for one more attempt; one that waits for its next scheduled attempt keeps that time. */
export function redeliver(delivery: Delivery, now: number): Redelivery {
  const { attempts, leaseUntil, state, nextAttemptAt } = delivery
  const isDue = state === 'pending' && nextAttemptAt !== null && nextAttemptAt <= now
  if (attempts.length === 0 || leaseUntil !== null || isDue || delivery.redelivery) return { outcome: 'coming' }
  if (attempts.filter(isRedelivery).length >= REDELIVERIES_MAX) return { outcome: 'exhausted' }
  const redelivery = { resumeAt: state === 'pending' ? nextAttemptAt : null }
  return { outcome: 'due', delivery: { ...delivery, state: 'pending', nextAttemptAt: now, redelivery } }
}

/** How many attempts of the schedule were made. */
export function scheduledAttempts(delivery: Pick<Delivery, 'attempts'>): number {
  return delivery.attempts.filter((attempt) => !isRedelivery(attempt)).length
}

function isRedelivery({ redelivery }: DeliveryAttempt): boolean {
  return redelivery === true
}
