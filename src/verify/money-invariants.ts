/** Money invariants: the money burned by a subscription's periods equals the charges of its tasks. Pure; micro-units, epoch milliseconds. */
import { formatMoney } from '../domain/money.ts'
import type { MediaPeriod } from '../domain/subscription/subscription.ts'
import { FINAL, type Task } from '../domain/task.ts'
import { chargeOf, OVERDUE_MS } from './task-invariants.ts'

/** A task that was charged, or will be (`isFinal` false). Its period follows approximately from its creation time. */
export type Charge = { createdAt: number; amount: number; isFinal: boolean }

/** What a task claims of the money of its period, in micro-units; null for nothing. */
export function chargeFor(task: Task): Charge | null {
  const amount = chargeOf(task)
  return amount === null || amount === 0 ? null : { createdAt: task.createdAt, amount, isFinal: FINAL.includes(task.state) }
}

/**
 * `before` was read before the tasks, `after` after them. The state of a task is claimed before its money moves and final after, so what
 * was burned `before` is at most what tasks claim, and what final tasks were charged is at most what was burned `after`. In a store at rest
 * both together are equality. Tasks that ended before `keptSince` may have been removed.
 */
export function* moneyViolations(
  id: string,
  before: MediaPeriod[],
  after: MediaPeriod[],
  charges: Charge[],
  keptSince: number,
): Generator<string> {
  const kept = after.filter(({ start }) => start - OVERDUE_MS >= keptSince)
  // Periods that nobody used are counted and not stored; the first one is, with the account.
  if (after[0] && after[0].n !== 0) yield `${id}: the periods before ${after[0].n} are lost`
  for (const period of after) {
    const { n, start, end } = period
    const surely = charges.filter(({ isFinal, createdAt }) => isFinal && createdAt >= start + OVERDUE_MS && createdAt < end - OVERDUE_MS)
    const charged = sum(surely)
    // One that a clock ahead began may be archived beside the real one.
    const burnedThen = after.reduce((all, one) => all + (one.start < end && one.end > start ? one.burned : 0), 0)
    if (charged > burnedThen) {
      yield `${id}: ended tasks of period ${n} were charged ${formatMoney(charged)}, but only ${formatMoney(burnedThen)} was burned`
    }
    if (!kept.includes(period)) continue
    const burned = before.find((one) => one.n === n)?.burned ?? 0
    const claimed = sum(charges.filter(({ createdAt }) => createdAt >= start - OVERDUE_MS && createdAt < end + OVERDUE_MS))
    if (burned > claimed) yield `${id}: period ${n} burned ${formatMoney(burned)}, but its tasks were charged only ${formatMoney(claimed)}`
  }
  const first = kept[0]
  if (!first) return
  // Over all that is kept nothing is lost between two periods; what was charged near the beginning may belong to one that is not.
  const from = first.n === 0 ? -Infinity : first.start
  const total = (periods: MediaPeriod[]) => periods.reduce((all, { n, burned }) => all + (n >= first.n ? burned : 0), 0)
  const charged = sum(charges.filter(({ isFinal, createdAt }) => isFinal && createdAt >= from + OVERDUE_MS))
  const claimed = sum(charges.filter(({ createdAt }) => createdAt >= from - OVERDUE_MS))
  if (charged > total(after)) {
    yield `${id}: ended tasks were charged ${formatMoney(charged)} in all, but only ${formatMoney(total(after))} was burned`
  }
  if (total(before) > claimed) {
    yield `${id}: ${formatMoney(total(before))} was burned in all, but tasks were charged only ${formatMoney(claimed)}`
  }
}

function sum(charges: Charge[]): number {
  return charges.reduce((all, { amount }) => all + amount, 0)
}
