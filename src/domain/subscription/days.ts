/** Usage by UTC day in a record. Pure. */

const USAGE_DAYS = 35

const DAY_MS = 24 * 3600 * 1000
let lastDay = { n: 0, text: '1970-01-01' }

/** `YYYY-MM-DD` of an epoch time in milliseconds. */
export function dayOf(time: number): string {
  const n = Math.floor(time / DAY_MS)
  // Nearly all calls are about today.
  if (n !== lastDay.n) lastDay = { n, text: new Date(time).toISOString().slice(0, 10) }
  return lastDay.text
}

/** The newest 35 days, in their order. */
export function newestDays<T>(days: Record<string, T>): Record<string, T> {
  return Object.fromEntries(
    Object.entries(days)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .slice(-USAGE_DAYS),
  )
}

/** Counters of a day by name; one that is absent is 0. */
export type Counts = Partial<Record<string, number>>

/** The sums of both, by name. */
export function addUp<T extends Counts>(a: T, b: T): T {
  const sum: Counts = { ...a }
  for (const [name, count] of Object.entries(b)) sum[name] = (sum[name] ?? 0) + (count ?? 0)
  return sum as T
}
