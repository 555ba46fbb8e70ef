/** The media allowance and its periods. Pure; money is micro-units, times are epoch milliseconds. */
import type { MediaTerms } from './plans.ts'
import type { MediaAccount, MediaPeriod } from './subscription/subscription.ts'

const DAY_MS = 24 * 3600 * 1000

/** The anchor's day and time of day, `months` UTC months later; a day that the month lacks is its last one. */
function addMonths(anchor: number, months: number): number {
  const date = new Date(anchor)
  const target = new Date(anchor)
  target.setUTCDate(1)
  target.setUTCMonth(date.getUTCMonth() + months)
  const lastDay = new Date(Date.UTC(target.getUTCFullYear(), target.getUTCMonth() + 1, 0)).getUTCDate()
  target.setUTCDate(Math.min(date.getUTCDate(), lastDay))
  return target.getTime()
}

/** The period that starts at `start`: its end is a number of days later, or of UTC months counted from the anchor. */
function periodFrom(terms: MediaTerms, anchor: number, n: number, start: number): MediaPeriod {
  return { n, start, end: endOf(terms, anchor, start), allowance: terms.allowance, burned: 0, usage: {} }
}

function endOf(terms: MediaTerms, anchor: number, start: number): number {
  if (terms.period.unit === 'days') return start + terms.period.count * DAY_MS
  // Months count from the anchor, so that 31 January is followed by 28 February and then 31 March again.
  const from = new Date(anchor)
  const at = new Date(start)
  let begun = (at.getUTCFullYear() - from.getUTCFullYear()) * 12 + at.getUTCMonth() - from.getUTCMonth()
  if (addMonths(anchor, begun) > start) begun--
  return addMonths(anchor, begun + terms.period.count)
}

export function firstPeriod(terms: MediaTerms, anchor: number): MediaPeriod {
  return periodFrom(terms, anchor, 0, anchor)
}

/** Rolls the account over to the period that contains `now`. The ended period moves to `past`; periods without activity are counted, not stored. */
export function rollPeriod(account: MediaAccount, terms: MediaTerms, anchor: number, now: number): MediaAccount {
  if (now < account.period.end) return account
  let { n, end } = account.period
  let start = end
  for (n++, end = endOf(terms, anchor, start); now >= end; n++) {
    start = end
    end = endOf(terms, anchor, start)
  }
  return { ...account, past: [...account.past, account.period], period: periodFrom(terms, anchor, n, start) }
}

/** The account as a client sees it: `granted` = available + held + burned (of the running period). */
export type Balance = { granted: number; available: number; held: number; burned: number }

/** Sums of the running period: held, burned and available, which is never below 0 after the allowance was lowered. */
export function balanceOf(account: MediaAccount): Balance {
  const { period } = account
  let held = 0
  for (const hold of Object.values(account.holds)) if (hold.period === period.n) held += hold.amount
  const available = Math.max(0, period.allowance - held - period.burned)
  return { granted: available + held + period.burned, available, held, burned: period.burned }
}

/** Usage of the running period by one key: held and burned. */
export function keyUse(account: MediaAccount, keyId: string): { burned: number; held: number } {
  const counter = account.keys[keyId]
  let held = 0
  for (const hold of Object.values(account.holds)) if (hold.period === account.period.n && hold.keyId === keyId) held += hold.amount
  return { burned: counter && counter.period === account.period.n ? counter.burned : 0, held }
}

/** Held plus burned of one key. */
export function keyUsed(account: MediaAccount, keyId: string): number {
  const { burned, held } = keyUse(account, keyId)
  return burned + held
}

/** What a key may still hold: the plan's available amount, or less where the key's own cap leaves less. */
export function availableToKey(account: MediaAccount, { keyId, cap }: { keyId: string; cap: number | null }): number {
  const { available } = balanceOf(account)
  return cap === null ? available : Math.max(0, Math.min(available, cap - keyUsed(account, keyId)))
}
