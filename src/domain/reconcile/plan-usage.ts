/** The usage in the status of a Plan: what is written, and when the controller reads it again. Pure. */
import { accountAt } from '../balance.ts'
import { formatMoney } from '../money.ts'
import { inactiveReason, type Subscription } from '../subscription/subscription.ts'
import { viewOf } from '../token-windows.ts'
import type { PlanUsage } from '../../backends/resources/resources.ts'

/** The API server gets no more than one write of usage a minute for each plan. */
const USAGE_WRITE_INTERVAL_MS = 60_000
/** A plan that is not used is looked at less and less often, so that thousands of idle plans cost the store little. */
const USAGE_LOOK_INTERVAL_MAX_MS = 15 * 60_000

/**
 * The usage to show, which is the one of `before` where it has not changed or was written less than a minute ago; null while nothing was
 * ever used. `lookAt` is the time (epoch milliseconds) of the next look: the longer ago the last change, the later. Null for a plan that is
 * not active and has no usage.
 */
export function planUsage(record: Subscription, before: PlanUsage | null, now: number): { usage: PlanUsage | null; lookAt: number | null } {
  if (record.anchor === null || record.anchor > now) return { usage: before, lookAt: null }
  const numbers = numbersOf(record, now)
  const writtenAt = before === null ? null : Date.parse(before.time)
  const isUnused = before === null && Object.values(numbers).every((number) => Number(number) === 0)
  const isSame = before !== null && Object.entries(numbers).every(([name, number]) => before[name as keyof PlanUsage] === number)
  if (isUnused && inactiveReason(record, now) !== null) return { usage: null, lookAt: null }
  if (isUnused || isSame) {
    const idleMs = now - (writtenAt ?? record.anchor)
    return { usage: before, lookAt: now + Math.min(Math.max(idleMs, USAGE_WRITE_INTERVAL_MS), USAGE_LOOK_INTERVAL_MAX_MS) }
  }
  const writableAt = (writtenAt ?? -Infinity) + USAGE_WRITE_INTERVAL_MS
  // A time ahead of the clock was written by a clock that was wrong.
  if (writableAt > now && writableAt <= now + USAGE_WRITE_INTERVAL_MS) return { usage: before, lookAt: writableAt }
  return { usage: { time: new Date(now).toISOString(), ...numbers }, lookAt: now + USAGE_WRITE_INTERVAL_MS }
}

function numbersOf(record: Subscription, now: number): Omit<PlanUsage, 'time'> {
  const { coding, terms } = record
  if (coding && terms.coding) {
    const { session, weekly } = viewOf(coding, terms.coding, now)
    return { sessionTokens: session.used, weeklyTokens: weekly.used }
  }
  const account = accountAt(record, now)
  return account ? { burned: formatMoney(account.period.burned) } : {}
}
