/**
 * Usage records, by which usage is billed: one for each coding request that was charged, each task that was captured, and each pass-through request. A plan's record
 * makes it with the charge (`docs/usage-records.md`). Pure.
 */
import type { Usage } from './token-windows.ts'

type Charged = {
  /** Of the request or the task: one record for each. */
  id: string
  subscription: string
  keyId: string
  /** When it was charged, epoch milliseconds by the plan's record. */
  at: number
}

/** `charged`: tokens that the windows count. `isEstimated`: the upstream did not report them; `usage` is null where nothing is known of them but the reservation. */
export type CodingUsage = Charged & { usage: Usage | null; charged: number; isEstimated: boolean }
/** `kind`: the kind, the operation, or `pass-through`. `cost`: micro-units. */
export type MediaUsage = Charged & { kind: string; cost: number }
export type UsageRecord = CodingUsage | MediaUsage

/** A place in the list of a plan's records, which is ordered by these. */
export type UsagePosition = Pick<UsageRecord, 'at' | 'id'>
/** From `since` up to, not including, `until`. */
export type UsageRange = { since: number; until: number }

/** Whether it is of a coding request. */
export function isCodingUsage(record: UsageRecord): record is CodingUsage {
  return 'charged' in record
}

/** The position that a page of a range begins after: no id is empty, so that this one is before all of its time. */
export function startOf({ since }: UsageRange, after: UsagePosition | null): UsagePosition {
  return after && after.at >= since ? after : { at: since, id: '' }
}

/** The order of a plan's records. */
export function byPosition(a: UsagePosition, b: UsagePosition): number {
  return a.at - b.at || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0)
}

/** The mark of a day's sums of which every charge has a record. `before`: the sums before this charge, if there are any; it has a record itself where it `isRecorded`. */
export function recordedMark(isRecorded: boolean, before: { isRecorded?: true } | undefined): { isRecorded?: true } {
  return isRecorded && (before === undefined || before.isRecorded) ? { isRecorded: true } : {}
}
