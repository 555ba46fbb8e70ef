/**
 * What the plans of a namespace have been granted in their running periods, for the limits that PLAN_LIMITS sets on all of them together.
 * Pure. Each plan name has an account of its own, so a removed plan counts until its period has ended: otherwise another name would refill
 * the allowance.
 */
import { heldIn } from './subscription/holds.ts'
import type { Subscription } from './subscription/subscription.ts'
import { WEEK_MS } from './token-windows.ts'

export type Grant = {
  id: string
  /** The first activation, by which older plans come first; null before it. */
  since: number | null
  /** Micro-units granted; 0 for Coding. */
  micro: number
  /** When it counts no longer, epoch milliseconds; null while the plan is in force. */
  until: number | null
}

/** The grant of a record at `now`; null when it counts for nothing. */
export function grantOf(record: Subscription, now: number): Grant | null {
  const { id, anchor: since, plan, state, verdict, activeUntil } = record
  const inForce = plan !== null && verdict === null && state !== 'Retired' && (activeUntil === null || now < activeUntil)
  const until = runningUntil(record, now)
  if (!inForce && until === null) return null
  const allowance = inForce ? (record.terms.media?.allowance ?? 0) : verdict === null ? (record.media?.period.allowance ?? 0) : 0
  return { id, since, micro: Math.max(allowance, until === null ? 0 : spent(record)), until: inForce ? null : until }
}

/** The end of the period or week that runs at `now` in the record as it is stored; null when the last one has ended. */
function runningUntil({ media, coding }: Subscription, now: number): number | null {
  const { start, end } = media?.period ?? { start: coding?.weekly.start ?? Infinity, end: (coding?.weekly.start ?? 0) + WEEK_MS }
  return start <= now && now < end ? end : null
}

/** Burned and held in the period of the record: a plan may have used more than an allowance that was lowered, or refused, since. */
function spent({ media }: Subscription): number {
  if (!media) return 0
  return media.period.burned + heldIn(media.holds, media.period.n)
}

/**
 * The grants that come before that of a plan which wants `micro`: all others where it wants more than it has, otherwise only those of older
 * plans. So no plan loses what it has to a newer one, and when limits are lowered, the newest plans are refused.
 */
export function grantsBefore(grants: Grant[], id: string, micro: number): Grant[] {
  const own = grants.find((grant) => grant.id === id)
  const others = grants.filter((grant) => grant !== own)
  return own && micro <= own.micro ? others.filter((other) => isOlder(other, own)) : others
}

function isOlder(a: Grant, b: Grant): boolean {
  const [since, than] = [a.since ?? Infinity, b.since ?? Infinity]
  return since < than || (since === than && a.id < b.id)
}
