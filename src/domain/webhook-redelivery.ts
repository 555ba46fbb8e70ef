/** Redelivery of webhooks: one more attempt outside the retry schedule (`docs/webhooks.md`, "Redelivery"). Pure. */
import type { Delivery, DeliveryAttempt, ReplayRange } from './task.ts'

/** Attempts outside the schedule that one delivery may have. */
const REDELIVERIES_MAX = 10

/** Before the next redelivery, after as many that failed in a row: a receiver that hangs holds a place for each. */
const PAUSES_MS = [30_000, 120_000, 600_000, 3_600_000]

/** Deliveries that one replay may examine; the cursor of its answer leads to the rest. */
export const REPLAY_MAX = 500

/** Longest range of a replay. */
export const REPLAY_RANGE_MS = 31 * 24 * 3_600_000

/** Whether a delivery that a replay examines is one of those that it selects. */
export function isSelected({ event, state }: Delivery, range: Pick<ReplayRange, 'event' | 'states'>): boolean {
  return (range.event === null || range.event === event) && (range.states?.includes(state) ?? true)
}

export type Redelivery =
  /** The changed delivery: due now. */
  | { outcome: 'due'; delivery: Delivery & Required<Pick<Delivery, 'redelivery'>> }
  /** An attempt is due or under way already, or the first one is still to come: nothing changes. */
  | { outcome: 'coming' }
  /** It had `REDELIVERIES_MAX` already. */
  | { outcome: 'exhausted' }
  /** The last redelivery failed: not before `redeliverableAt`. */
  | { outcome: 'early' }

/** Makes a delivery due now for one more attempt; one that waits for its next scheduled attempt keeps that time. */
export function redeliver(delivery: Delivery, now: number): Redelivery {
  const { attempts, leaseUntil, state, nextAttemptAt } = delivery
  const isDue = state === 'pending' && nextAttemptAt !== null && nextAttemptAt <= now
  if (attempts.length === 0 || leaseUntil !== null || isDue || delivery.redelivery) return { outcome: 'coming' }
  if (attempts.filter(isRedelivery).length >= REDELIVERIES_MAX) return { outcome: 'exhausted' }
  if (now < redeliverableAt(delivery)) return { outcome: 'early' }
  const redelivery = { resumeAt: state === 'pending' ? nextAttemptAt : null }
  return { outcome: 'due', delivery: { ...delivery, state: 'pending', nextAttemptAt: now, redelivery } }
}

/** When the next redelivery may be asked for, epoch ms: after redeliveries that failed in a row, as late as the schedule would be. */
export function redeliverableAt({ attempts }: Pick<Delivery, 'attempts'>): number {
  const delivered = attempts.findLastIndex(({ statusCode }) => statusCode !== null && statusCode >= 200 && statusCode < 300)
  const failed = attempts.slice(delivered + 1).filter(isRedelivery)
  const last = failed.at(-1)
  return last ? last.at + last.durationMs + (PAUSES_MS[Math.min(failed.length, PAUSES_MS.length) - 1] ?? 0) : 0
}

/** How many attempts of the schedule were made. */
export function scheduledAttempts(delivery: Pick<Delivery, 'attempts'>): number {
  return delivery.attempts.filter((attempt) => !isRedelivery(attempt)).length
}

function isRedelivery({ redelivery }: DeliveryAttempt): boolean {
  return redelivery === true
}
