/**
 * The record of a subscription, a tenant's Plan by name. Everything that must be consistent at one instant is in it: the plan's state and
 * limits, money, the queue of open tasks, token windows, rate. It outlives the Plan resource. Times are epoch milliseconds, money is micro-units.
 */
import { Failure } from '../errors.ts'
import type { Terms } from '../plans.ts'
import type { Rate } from '../rate-limit.ts'
import type { Product } from '../../backends/resources/resources.ts'
import type { Holds } from './holds.ts'
import type { RefusedDay } from './refusals.ts'
import type { UsageRecord } from '../usage-records.ts'

export type Subscription = {
  /** `namespace/planName`. */
  id: string
  /** Rises by one with every replacement; 0 before the first. */
  version: number
  /** The latest time of any command; time inside the record never goes back. */
  at: number
  tenant: string
  product: Product
  /** The Plan resource applied last; null once it was removed. */
  plan: { uid: string; createdAt: number; generation: number } | null
  terms: Terms
  /** Whether a limit was ever lowered, so that what was used before may be above it. Absent in records of earlier versions. */
  lowered?: boolean
  state: 'Active' | 'Suspended' | 'Retired'
  activeFrom: number | null
  activeUntil: number | null
  /** Why PLAN_LIMITS refuses the plan, or null when it does not. */
  verdict: string | null
  /** The first activation; periods and weeks count from it. Null until then. */
  anchor: number | null
  /** Raised whenever any of its keys changes. */
  keysVersion: number
  rate: Rate
  media: MediaAccount | null
  coding: CodingAccount | null
  /** Usage records that were made with this version or shortly before, and may not be stored by themselves yet. Absent without one. */
  outbox?: UsageRecord[]
  /** The latest time from which the record was healed: usage records of days up to it may bear another day than their charge. Absent before. */
  healedFrom?: number
}

/** By kind or operation. `isRecorded`: every charge of the day so far has a usage record; earlier releases drop it with their next charge. */
export type DayUsage = Record<string, { count: number; burned: number; isRecorded?: true }>

export type MediaPeriod = {
  n: number
  start: number
  end: number
  allowance: number
  burned: number
  /** By UTC day (YYYY-MM-DD), then by kind or operation. */
  usage: Record<string, DayUsage>
  /** Where its calendar months count from, when that is not the record's `anchor`: periods of days came before. */
  monthsFrom?: number
}

export type Hold = {
  /** The period that pays. */
  period: number
  amount: number
  /** Media kind or operation. */
  kind: string
  keyId: string
  /** Raised by each claim: a run with an older epoch is refused (fencing). */
  epoch: number
  /** The epoch before any claim: the claims of this hold are those above it. Absent in holds of earlier releases. */
  firstEpoch?: number
  /** `servedBefore`: the account's `lastServedAt` when it was claimed. */
  run: { claim: string; at: number; servedBefore: number } | null
  /** When it may be claimed; 0 at once. Records written before hold the time at which it was queued. */
  readyAt: number
  /** When it was queued last. */
  at: number
}

export type MediaAccount = {
  period: MediaPeriod
  /** Ended periods with open holds, or not archived yet. */
  past: MediaPeriod[]
  /** The least number of a later period: those before were given while a clock was ahead. Absent unless the record was healed. */
  numbersFrom?: number
  holds: Holds
  keys: Record<string, { period: number; burned: number }>
  /** Time of the last claim. Before any it is negative, in the order of first tasks; 0 without a task. The smallest is served first. */
  lastServedAt: number
  /** Derived: the earliest waiting task per kind; empty while maxConcurrentTasks run. `readyAt` 0: one is ready at once. */
  due: { kind: string; readyAt: number }[]
}

export type Reservation = {
  /** The gateway process that serves the request. */
  instance: string
  /** Start of the session window that admitted it. */
  session: number
  /** Number of the weekly window that admitted it. */
  week: number
  keyId: string
  tokens: number
  /** Size of the prompt in bytes, to learn tokens per byte from. */
  bytes: number
  at: number
}

/**
 * What one gateway may admit before it writes the record again: nobody else takes it until then. Admissions of the gateway itself take it without a change here, since each of its
 * writes renews it.
 */
export type Lease = {
  /** Afterwards nobody heeds it. */
  until: number
  /** Of the session and of the week. */
  tokens: number
  /** Of those that may be in flight, and of the rate. */
  requests: number
  /** Tokens of keys with a cap. */
  keys: Record<string, number>
}

/** `isRecorded`: as in `DayUsage`. */
export type CodingDay = { requests: number; input: number; cachedInput: number; output: number; charged: number; isRecorded?: true }

export type CodingAccount = {
  session: { start: number; end: number; used: number } | null
  weekly: { n: number; start: number; used: number }
  /** By UTC day, the newest 35. */
  usage: Record<string, CodingDay>
  reservations: Record<string, Reservation>
  /** By gateway process. Absent without any. */
  leases?: Record<string, Lease>
  /** Tokens used and requests refused in a week; `refused` is absent when none was. */
  keys: Record<string, { week: number; used: number; refused?: number }>
  /** Refused requests by UTC day, the newest 35 that have some, and the ids of the last counts. Absent before the first. */
  refusals?: { days: Record<string, RefusedDay>; counts: string[] }
  /** Outputs seen, by log2 of their tokens; 24 buckets. */
  outputs: number[]
  /** Learned prompt tokens per 1,000 bytes. */
  ratio: number
  /** Answers with a reported usage, and their output tokens: those that were seen, and those that were billed. Absent in records of earlier versions. */
  shown?: { requests: number; seen: number; billed: number }
}

export type InactiveReason = 'PlanNotFound' | 'PlanNotAllowed' | 'PlanSuspended' | 'PlanRetired' | 'PlanNotActive' | 'PlanExpired'

/** Why a subscription is inactive at `now`, or null when it is active. */
export function inactiveReason(record: Subscription | null, now: number): InactiveReason | null {
  if (!record?.plan) return 'PlanNotFound'
  if (record.state === 'Retired') return 'PlanRetired'
  if (record.state === 'Suspended') return 'PlanSuspended'
  if (record.verdict !== null) return 'PlanNotAllowed'
  if (record.activeUntil !== null && now >= record.activeUntil) return 'PlanExpired'
  if (record.activeFrom !== null && now < record.activeFrom) return 'PlanNotActive'
  return null
}

const REASONS: Record<InactiveReason, string> = {
  PlanNotFound: 'its Plan does not exist',
  PlanNotAllowed: 'its Plan grants more than is allowed here',
  PlanSuspended: 'it is suspended',
  PlanRetired: 'it is retired',
  PlanNotActive: 'its start time has not come',
  PlanExpired: 'it has expired',
}

/** `plan_inactive` with its reason. */
export function planInactive(reason: InactiveReason): Failure {
  return new Failure('plan_inactive', { message: `The plan of this API key is not active: ${REASONS[reason]}. Nothing was charged.` })
}
