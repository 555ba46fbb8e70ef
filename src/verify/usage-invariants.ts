/** Invariants of usage records: their sums by day are those of the plan's books, for every day that says that all of its charges are recorded. */
import type { Store } from '../backends/store/store.ts'
import { formatMoney } from '../domain/money.ts'
import { dayOf } from '../domain/subscription/days.ts'
import type { MediaPeriod, Subscription } from '../domain/subscription/subscription.ts'
import { isCodingUsage, type UsageRecord } from '../domain/usage-records.ts'
import { readUsage } from '../tasks/paged-reads.ts'

/** A snapshot of one subscription. */
export type Booked = { record: Subscription; periods: Pick<MediaPeriod, 'usage'>[] }
/** `amount`: tokens, or micro-units. */
type Sum = { count: number; amount: number }

/**
 * `before` was read before, `after` is read after the usage records of one subscription: what is recorded is at least what was charged `before` and at most what was charged
 * `after`. Days from which records may have been removed are not compared. `read` is called for each usage record.
 */
export async function* usageViolations(
  store: Store,
  before: Booked,
  after: () => Promise<Booked>,
  read: () => void,
): AsyncGenerator<string> {
  const { id } = before.record
  const floor = await store.usageFloor()
  if (booksOf(before, floor).size === 0) return
  const recorded = new Map<string, Sum>()
  for await (const page of readUsage(store, id, { since: floor, until: Infinity })) {
    for (const one of page) {
      read()
      add(recorded, nameOf(one), 1, isCodingUsage(one) ? one.charged : one.cost)
    }
  }
  // The retention goes on meanwhile.
  const keptSince = await store.usageFloor()
  const later = booksOf(await after(), keptSince)
  for (const [name, least] of booksOf(before, keptSince)) {
    const most = later.get(name)
    // A process without usage records, or the end of the kept days, came in between.
    if (!most) continue
    const { count, amount } = recorded.get(name) ?? { count: 0, amount: 0 }
    const shown = (sum: Sum) => `${sum.count} charges of ${name.endsWith(' coding') ? `${sum.amount} tokens` : formatMoney(sum.amount)}`
    if (count < least.count || amount < least.amount)
      yield `${id}: on ${name} are ${shown(least)}, but usage records of only ${shown({ count, amount })}`
    if (count > most.count || amount > most.amount)
      yield `${id}: on ${name} are usage records of ${shown({ count, amount })}, but only ${shown(most)}`
  }
}

/** What was charged, by day and kind, on the days of which every charge is recorded. */
function booksOf({ record, periods }: Booked, keptSince: number): Map<string, Sum> {
  const books = new Map<string, Sum>()
  const unrecorded = new Set<string>()
  const healedOn = record.healedFrom === undefined ? '' : dayOf(record.healedFrom)
  const book = (day: string, kind: string, count: number, amount: number, isRecorded = false): void => {
    if (day <= healedOn || Date.parse(day) < keptSince) return
    if (!isRecorded) unrecorded.add(`${day} ${kind}`)
    add(books, `${day} ${kind}`, count, amount)
  }
  for (const [day, { requests, charged, isRecorded }] of Object.entries(record.coding?.usage ?? {}))
    book(day, 'coding', requests, charged, isRecorded)
  // A day may be in two periods.
  for (const { usage } of periods)
    for (const [day, kinds] of Object.entries(usage))
      for (const [kind, { count, burned, isRecorded }] of Object.entries(kinds)) book(day, kind, count, burned, isRecorded)
  for (const name of unrecorded) books.delete(name)
  return books
}

function nameOf(record: UsageRecord): string {
  return `${dayOf(record.at)} ${isCodingUsage(record) ? 'coding' : record.kind}`
}

function add(sums: Map<string, Sum>, name: string, count: number, amount: number): void {
  const sum = sums.get(name)
  sums.set(name, { count: (sum?.count ?? 0) + count, amount: (sum?.amount ?? 0) + amount })
}
