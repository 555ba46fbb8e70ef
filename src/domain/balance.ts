/** The media allowance and its periods. Pure; money is micro-units, times are epoch milliseconds. */
import type { MediaTerms } from './plans.ts'
import { heldByKey, heldIn } from './subscription/holds.ts'
import type { MediaAccount, MediaPeriod, Subscription } from './subscription/subscription.ts'

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

/** Whole months from `base` to `start`; null when `start` is none of their ends. */
function monthsBetween(base: number, start: number): number | null {
  const [from, at] = [new Date(base), new Date(start)]
  const months = (at.getUTCFullYear() - from.getUTCFullYear()) * 12 + at.getUTCMonth() - from.getUTCMonth()
  return addMonths(base, months) === start ? months : null
}

/**
 * The end of a period that starts at `start`, and where its months count from: from `base`, so that 31 January is followed by 28 February
 * and then 31 March again. A period of months that follows one of days seldom starts on such a day: months count from its start then, so
 * that it is a full one.
 */
function spanFrom(terms: MediaTerms, base: number, start: number): { end: number; base: number } {
  const { unit, count } = terms.period
  if (unit === 'days') return { end: start + count * DAY_MS, base }
  const months = monthsBetween(base, start)
  return months === null ? { end: addMonths(start, count), base: start } : { end: addMonths(base, months + count), base }
}

/** The period that begins with the first activation of the plan, at `anchor`. */
export function firstPeriod(terms: MediaTerms, anchor: number): MediaPeriod {
  return { n: 0, start: anchor, end: spanFrom(terms, anchor, anchor).end, allowance: terms.allowance, burned: 0, usage: {} }
}

/** Rolls the account over to the period that contains `now`. The ended period moves to `past`; periods without activity are counted, not stored. */
export function rollPeriod(account: MediaAccount, terms: MediaTerms, anchor: number, now: number): MediaAccount {
  if (now < account.period.end) return account
  let start = account.period.end
  let span = spanFrom(terms, account.period.monthsFrom ?? anchor, start)
  let n = Math.max(account.period.n + 1, account.numbersFrom ?? 0)
  for (; now >= span.end; n++) {
    start = span.end
    span = spanFrom(terms, span.base, start)
  }
  const isOwnBase = terms.period.unit === 'months' && span.base !== anchor
  const period: MediaPeriod = {
    n,
    start,
    end: span.end,
    allowance: terms.allowance,
    burned: 0,
    usage: {},
    ...(isOwnBase && { monthsFrom: span.base }),
  }
  return { ...account, past: [...account.past, account.period], period }
}

/**
 * The account of a record in the period that runs at `now`; null before the first activation. While the Plan is refused no period begins: a length
 * beyond the limits would grant the allowance more often.
 */
export function accountAt(record: Pick<Subscription, 'media' | 'terms' | 'anchor' | 'verdict'>, now: number): MediaAccount | null {
  const { media, terms, anchor, verdict } = record
  if (!media || !terms.media || anchor === null) return null
  return verdict === null ? rollPeriod(media, terms.media, anchor, now) : media
}

/** The account as a client sees it: `granted` = available + held + burned (of the running period). */
export type Balance = { granted: number; available: number; held: number; burned: number }

/** Sums of the running period: held, burned and available, which is never below 0 after the allowance was lowered. */
export function balanceOf(account: MediaAccount): Balance {
  const { period } = account
  const held = heldIn(account.holds, period.n)
  const available = Math.max(0, period.allowance - held - period.burned)
  return { granted: available + held + period.burned, available, held, burned: period.burned }
}

/** Usage of the running period by one key: held and burned. */
export function keyUse(account: MediaAccount, keyId: string): { burned: number; held: number } {
  const counter = account.keys[keyId]
  const burned = counter && counter.period === account.period.n ? counter.burned : 0
  return { burned, held: heldByKey(account.holds, account.period.n, keyId) }
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
