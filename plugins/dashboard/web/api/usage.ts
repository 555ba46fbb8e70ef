/** What the tenant has used, as the server counts it. */
import { api } from './client.ts'
import type { WindowUsage } from './plans.ts'
import type { Page } from './tasks.ts'

export type MediaUsage = {
  plan: string
  period: { start: string; end: string } | null
  allowance: string
  held: string
  burned: string
  remaining: string
  days: { date: string; by: Record<string, { count: number; burned: string }> }[]
  keys: { name: string | null; burned: string }[]
  periods: { start: string; end: string; burned: string; allowance: string }[]
}

export type CodingDay = {
  date: string
  requests: number
  input: number
  cached_input: number
  output: number
  charged: number
  refusals: number
  /** Refusals by the code of the answer. */
  refused: Record<string, number>
}
export type CodingUsage = {
  plan: string
  session: Required<WindowUsage>
  weekly: Required<WindowUsage>
  overshoot: number
  days: CodingDay[]
  keys: { name: string | null; used: number; refusals: number }[]
}

/** A coding request that has ended: what it used, and no word of it. */
export type CodingRequest = {
  id: string
  time: string
  key: string | null
  input: number | null
  cached_input: number | null
  output: number | null
  charged: number | null
  /** `completed`, `client_left`, or the code of its error. */
  outcome: string
  status: number
  duration_ms: number
}

/** A page of a plan's newest requests; '' for all keys, and for the first page. */
export const codingRequests = (plan: string, key: string, cursor: string, signal: AbortSignal): Promise<Page<CodingRequest>> =>
  api('/usage/coding/requests', { query: { plan, key, cursor }, signal })
/** Money and tasks of a plan. */
export const mediaUsage = (plan: string, since: string, signal: AbortSignal): Promise<MediaUsage> =>
  api('/usage/media', { query: { plan, since }, signal })
/** Token windows and days of a plan. */
export const codingUsage = (plan: string, since: string, signal: AbortSignal): Promise<CodingUsage> =>
  api('/usage/coding', { query: { plan, since }, signal })

const DAY_MS = 86_400_000

/** The first of so many days until today (UTC). */
export const firstOf = (days: number, now: number): string => new Date(now - (days - 1) * DAY_MS).toISOString().slice(0, 10)

/** Every day from `since` to today (UTC): the server leaves out days without use. */
export function everyDay<Day extends { date: string }>(days: Day[], empty: (date: string) => Day, since: string, now: number): Day[] {
  const known = new Map(days.map((one) => [one.date, one]))
  const [from, to] = [Math.floor(Date.parse(since) / DAY_MS), Math.floor(now / DAY_MS)]
  return Array.from({ length: to - from + 1 }, (_none, at) => {
    const date = new Date((from + at) * DAY_MS).toISOString().slice(0, 10)
    return known.get(date) ?? empty(date)
  })
}
