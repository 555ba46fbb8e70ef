/**
 * Healing of a record whose time lies ahead of the store's clock: it was written by a process with a wrong clock, or before the only clock
 * was set back. Time inside a record never goes back, so without healing it would stand still until the clocks catch up. Pure.
 */
import { rollPeriod } from '../balance.ts'
import type { MediaTerms } from '../plans.ts'
import { WEEK_MS } from '../token-windows.ts'
import type { CodingAccount, Hold, MediaAccount, MediaPeriod, Subscription } from './subscription.ts'
import { addUp, dayOf, type Counts } from './days.ts'
import { entriesOf, holdsFrom } from './holds.ts'
import { dueOf } from './task-queue.ts'

/** The most that the clocks of processes, measured against the store's, may differ. */
export const MAX_SKEW_MS = 5_000

/** Milliseconds by which the record's time lies ahead of the store's clock; 0 when clocks may differ by that much. */
export function aheadMs(record: Pick<Subscription, 'at'>, now: number): number {
  const ahead = record.at - now
  return ahead > MAX_SKEW_MS ? ahead : 0
}

/**
 * The record at the store's time `now`: what began ahead of it is taken back into the period, the session and the week that run now, with
 * everything that was used. The same record when its time is not ahead. `now` must be read after the record, or else a stale `now` would
 * take a good record for one that is ahead.
 */
export function heal(record: Subscription, now: number): Subscription {
  if (aheadMs(record, now) === 0) return record
  const anchor = record.anchor && Math.min(record.anchor, Math.max(now, record.activeFrom ?? now))
  const media = record.terms.media
  return {
    ...record,
    at: now,
    anchor,
    rate: { tat: shifted(record.rate.tat, record, now) },
    media: record.media && media && anchor !== null ? healMedia(record, record.media, media, anchor, now) : record.media,
    coding: record.coding && healCoding(record, record.coding, anchor ?? now, now),
    healedFrom: Math.max(record.at, record.healedFrom ?? 0),
  }
}

/** A time of the record on the store's clock: what lay after the record's time keeps its distance, nothing else is ahead. */
function shifted(time: number, record: Subscription, now: number): number {
  return Math.min(time, now + Math.max(0, time - record.at))
}

function healMedia(record: Subscription, account: MediaAccount, terms: MediaTerms, anchor: number, now: number): MediaAccount {
  const shift = (time: number) => shifted(time, record, now)
  const all = [...account.past, account.period]
  const begun = all.filter(({ start }) => start <= now)
  const early = all.filter(({ start }) => start > now)
  // Numbers identify periods, and one that was given ahead may be that of a period which was archived meanwhile.
  const numbered = early.length > 0 ? { ...account, numbersFrom: Math.max(account.period.n + 1, account.numbersFrom ?? 0) } : account
  const running = runningPeriod(numbered, record.verdict === null ? terms : null, anchor, now, begun.at(-1))
  const merged = [...(begun.includes(running) ? [running] : []), ...early]
  const period = { ...running, allowance: account.period.allowance, ...usageOf(merged, now) }
  const periodOf = (n: number) => (merged.some((one) => one.n === n) ? period.n : n)
  const holds = [...entriesOf(account.holds)].map(([id, hold]): [string, Hold] => {
    const run = hold.run && { ...hold.run, at: shift(hold.run.at), servedBefore: shift(hold.run.servedBefore) }
    return [id, { ...hold, period: periodOf(hold.period), run, readyAt: shift(hold.readyAt), at: shift(hold.at) }]
  })
  const keys = Object.fromEntries(Object.entries(account.keys).map(([id, one]) => [id, { ...one, period: periodOf(one.period) }]))
  // The counters of the keys were dropped when the next period seemed to begin: what they had burned belongs to none.
  delete keys['']
  const counted = Object.values(keys).reduce((sum, one) => sum + (one.period === period.n ? one.burned : 0), 0)
  if (counted < period.burned) keys[''] = { period: period.n, burned: period.burned - counted }
  const past = begun.filter((one) => one !== running)
  const next: MediaAccount = { ...numbered, period, past, keys, holds: holdsFrom(holds), lastServedAt: shift(account.lastServedAt) }
  return { ...next, due: dueOf(next, terms) }
}

/**
 * The period that contains `now`; without terms, which those of a refused Plan are not, the last one, as in `accountAt`. Without an earlier one in
 * the record, which may have been archived, it is the first of the early ones, as many of its lengths earlier.
 */
function runningPeriod(
  account: MediaAccount,
  terms: MediaTerms | null,
  anchor: number,
  now: number,
  last: MediaPeriod | undefined,
): MediaPeriod {
  if (last) return terms ? rollPeriod({ ...account, past: [], period: last }, terms, anchor, now).period : last
  const first = account.past[0] ?? account.period
  const lengthMs = first.end - first.start
  const start = Math.max(anchor, first.start - Math.ceil((first.start - now) / lengthMs) * lengthMs)
  return { ...first, start, end: start + lengthMs }
}

/** What these periods burned together; days ahead of `now` count as today. */
function usageOf(periods: MediaPeriod[], now: number): Pick<MediaPeriod, 'burned' | 'usage'> {
  const today = dayOf(now)
  const usage: MediaPeriod['usage'] = {}
  for (const period of periods) {
    for (const [day, kinds] of Object.entries(period.usage)) {
      const sums = (usage[day < today ? day : today] ??= {})
      for (const [kind, { count, burned }] of Object.entries(kinds)) {
        const sum = sums[kind] ?? { count: 0, burned: 0 }
        sums[kind] = { count: sum.count + count, burned: sum.burned + burned }
      }
    }
  }
  return { burned: periods.reduce((sum, { burned }) => sum + burned, 0), usage }
}

function healCoding(record: Subscription, account: CodingAccount, anchor: number, now: number): CodingAccount {
  const shift = (time: number) => shifted(time, record, now)
  const { session, weekly } = account
  const start = session && shift(session.start)
  const weeks = Math.min(weekly.n, Math.max(0, Math.ceil((weekly.start - now) / WEEK_MS)))
  const n = weekly.n - weeks
  const counts = Object.entries(account.usage).map(([day, { isRecorded: _unsure, ...one }]) => [day, one] as const)
  const usage: CodingAccount['usage'] = daysUntil(Object.fromEntries(counts), now)
  const { refusals } = account
  // The week that seemed to end is not in the record any more: its whole days are.
  const weekStart = Math.min(weekly.start - weeks * WEEK_MS, Math.max(now, anchor))
  const ofDays = Object.entries(usage).reduce((sum, [day, { charged }]) => sum + (Date.parse(day) >= weekStart ? charged : 0), 0)
  const used = weeks === 0 ? weekly.used : Math.max(weekly.used, ofDays)
  const keys = Object.fromEntries(Object.entries(account.keys).map(([id, one]) => [id, { ...one, week: Math.min(one.week, n) }]))
  delete keys['']
  const counted = Object.values(keys).reduce((sum, one) => sum + (one.week === n ? one.used : 0), 0)
  if (counted < used) keys[''] = { week: n, used: used - counted }
  const reservations = Object.entries(account.reservations).map(([id, one]) => {
    return [
      id,
      {
        ...one,
        session: one.session === session?.start && start !== null ? start : one.session,
        week: Math.min(one.week, n),
        at: shift(one.at),
      },
    ]
  })
  const { leases: _lapsed, ...kept } = account
  return {
    ...kept,
    session: session && start !== null ? { ...session, start, end: start + session.end - session.start } : null,
    weekly: { n, start: weekStart, used },
    usage,
    ...(refusals && { refusals: { ...refusals, days: daysUntil(refusals.days, now) } }),
    keys,
    reservations: Object.fromEntries(reservations),
  }
}

/** Days ahead of `now` count as today. */
function daysUntil<T extends Counts>(usage: Record<string, T>, now: number): Record<string, T> {
  const today = dayOf(now)
  const days: Record<string, T> = {}
  for (const [day, one] of Object.entries(usage)) {
    const at = day < today ? day : today
    const sum = days[at]
    days[at] = sum ? addUp(sum, one) : one
  }
  return days
}
