/** Invariants inside one subscription's record. Pure; money is micro-units. */
import { formatMoney } from '../domain/money.ts'
import { entriesOf } from '../domain/subscription/holds.ts'
import { dueOf } from '../domain/subscription/task-queue.ts'
import type { CodingAccount, MediaAccount, MediaPeriod, Subscription } from '../domain/subscription/subscription.ts'

/** The violated invariants of a record, one sentence each. */
export function* recordViolations(record: Subscription): Generator<string> {
  if (record.media) for (const sentence of mediaViolations(record, record.media)) yield `${record.id}: ${sentence}`
  if (record.coding) for (const sentence of codingViolations(record, record.coding)) yield `${record.id}: ${sentence}`
}

function* mediaViolations(record: Subscription, account: MediaAccount): Generator<string> {
  const holds = [...entriesOf(account.holds)]
  const periods = [...account.past, account.period]
  for (const [i, period] of periods.entries()) {
    yield* periodViolations(period)
    const next = periods[i + 1]
    if (next && (next.n <= period.n || next.start < period.end)) yield `period ${next.n} begins inside period ${period.n}`
    const held = holds.reduce((sum, [, hold]) => sum + (hold.period === period.n ? hold.amount : 0), 0)
    if (held + period.burned > period.allowance && record.lowered === false) {
      const [allowance, burned] = [period.allowance, period.burned].map(formatMoney)
      yield `period ${period.n} allows ${allowance}, but ${formatMoney(held)} is held and ${burned} burned`
    }
  }
  for (const [id, hold] of holds) {
    if (!whole(hold.amount)) yield `the hold of task ${id} is ${hold.amount} micro-units`
    if (!periods.some(({ n }) => n === hold.period)) yield `the hold of task ${id} is of period ${hold.period}, which is not open`
    if (hold.run !== null && hold.epoch < 1) yield `task ${id} runs without a claim`
  }
  const byKeys = Object.values(account.keys).reduce((sum, { period, burned }) => sum + (period === account.period.n ? burned : 0), 0)
  if (byKeys !== account.period.burned) yield `period ${account.period.n} burned ${account.period.burned} micro-units, its keys ${byKeys}`
  const { media } = record.terms
  if (!media) return
  const running = holds.filter(([, { run }]) => run !== null).length
  if (running > media.maxConcurrentTasks && record.lowered === false) yield `${running} tasks run, where ${media.maxConcurrentTasks} may`
  if (holds.length > media.maxQueuedTasks && record.lowered === false) {
    yield `${holds.length} tasks are open, where ${media.maxQueuedTasks} may be`
  }
  if (sorted(dueOf(account, media)) !== sorted(account.due)) yield 'what is due next is not what its holds say'
}

/** Of a period that is open, ended or archived. */
export function* periodViolations(period: MediaPeriod): Generator<string> {
  if (!whole(period.burned)) yield `period ${period.n} burned ${period.burned} micro-units`
  if (period.end <= period.start) yield `period ${period.n} ends before it begins`
  const counted = Object.values(period.usage)
    .flatMap((day) => Object.values(day))
    .reduce((sum, { burned }) => sum + burned, 0)
  if (counted !== period.burned) yield `period ${period.n} burned ${period.burned} micro-units, its days ${counted}`
}

function* codingViolations(record: Subscription, account: CodingAccount): Generator<string> {
  const { session, weekly } = account
  if (session && (!whole(session.used) || session.end <= session.start)) yield `the session window is ${JSON.stringify(session)}`
  if (!whole(weekly.used)) yield `the week used ${weekly.used} tokens`
  const byKeys = Object.values(account.keys).reduce((sum, { week, used }) => sum + (week === weekly.n ? used : 0), 0)
  if (byKeys !== weekly.used) yield `the week used ${weekly.used} tokens, its keys ${byKeys}`
  const reservations = Object.entries(account.reservations)
  for (const [id, { tokens, week }] of reservations) {
    if (!whole(tokens) || tokens === 0) yield `request ${id} reserves ${tokens} tokens`
    if (week > weekly.n) yield `request ${id} was admitted in week ${week}, which has not begun`
  }
  const most = record.terms.coding?.maxConcurrentRequests ?? Infinity
  if (reservations.length > most && record.lowered === false) yield `${reservations.length} requests are in flight, where ${most} may be`
}

function whole(amount: number): boolean {
  return Number.isSafeInteger(amount) && amount >= 0
}

function sorted(due: MediaAccount['due']): string {
  return JSON.stringify(due.map(({ kind, readyAt }) => `${kind} ${readyAt}`).sort())
}
