/**
 * The coding account of a record while commands are applied to it (`token-reservations.ts` has their rules). What is reserved is kept as sums, so that a command costs the same
 * however many requests are open: values are replaced, dictionaries are changed in place, and `toRecord` copies them.
 */
import { removeEntry } from '../long-lived-maps.ts'
import type { CodingTerms } from '../plans.ts'
import type { Rate } from '../rate-limit.ts'
import { roll, WEEK_MS, type Reserved } from '../token-windows.ts'
import type { UsageRecord } from '../usage-records.ts'
import { MAX_SKEW_MS } from './clock-healing.ts'
import type { CodingAccount, Lease, Reservation, Subscription } from './subscription.ts'

/** How long a lease lasts without a write. It is also how long requests may go on to be sent while the store gives no answer. */
export const LEASE_MS = 1_000

export class CodingLedger {
  /** What it was opened from, or was written last: its plan and version are as they are there. */
  record: Subscription
  readonly terms: CodingTerms | null
  rate: Rate
  session: CodingAccount['session']
  weekly: CodingAccount['weekly']
  learned: Pick<CodingAccount, 'outputs' | 'ratio' | 'shown'>
  /** Where the usage records of charges go; null: none are made. */
  readonly made: UsageRecord[] | null
  /** Whether a command has changed anything. */
  isChanged = false
  usage: CodingAccount['usage']
  readonly keys: CodingAccount['keys']
  readonly #account: CodingAccount
  #reservations = new Map<string, Reservation>()
  /** Null without any, as where one process writes the store alone. */
  #leases: Map<string, Lease> | null
  #inSession = 0
  #inWeek = 0
  readonly #inWeekByKey = new Map<string, number>()

  /** With its windows rolled to `now`, a time of the record. Null for a record without a coding account. */
  static open(record: Subscription | null, now: number, made: UsageRecord[] | null): CodingLedger | null {
    return record?.coding ? new CodingLedger(record, roll(record.coding, now), made) : null
  }

  private constructor(record: Subscription, account: CodingAccount, made: UsageRecord[] | null) {
    const { outputs, ratio, shown } = account
    this.record = record
    this.made = made
    this.terms = record.terms.coding
    this.rate = record.rate
    this.session = account.session
    this.weekly = account.weekly
    this.learned = { outputs, ratio, ...(shown ? { shown } : {}) }
    this.usage = { ...account.usage }
    this.keys = { ...account.keys }
    this.#account = account
    this.#leases = account.leases ? new Map(Object.entries(account.leases)) : null
    for (const id in account.reservations) this.#add(id, account.reservations[id] as Reservation)
  }

  /** Whether a window has ended at `now`: then it is opened anew. */
  isOver(now: number): boolean {
    return (this.session !== null && now >= this.session.end) || now >= this.weekly.start + WEEK_MS
  }

  reservation(id: string): Reservation | undefined {
    return this.#reservations.get(id)
  }

  /** The reservations of a gateway, with their ids. */
  reservationsOf(instance: string): [id: string, reservation: Reservation][] {
    return [...this.#reservations].filter(([, reservation]) => reservation.instance === instance)
  }

  reserved(keyId: string): Reserved {
    return {
      count: this.#reservations.size,
      session: this.#inSession,
      weekly: this.#inWeek,
      key: this.#inWeekByKey.get(keyId) ?? 0,
    }
  }

  /** The lease of a gateway that runs at `now`. */
  lease(instance: string, now: number): Lease | undefined {
    const lease = this.#leases?.get(instance)
    return lease && isRunning(lease, now) ? lease : undefined
  }

  /** What other gateways have leased at `now`: of the windows, of requests, and of a key. */
  leasedBesides(instance: string, keyId: string | null, now: number): { tokens: number; requests: number; key: number } {
    const sums = { tokens: 0, requests: 0, key: 0 }
    if (this.#leases === null) return sums
    for (const [owner, lease] of this.#leases) {
      if (owner === instance || !isRunning(lease, now)) continue
      sums.tokens += lease.tokens
      sums.requests += lease.requests
      if (keyId !== null) sums.key += lease.keys[keyId] ?? 0
    }
    return sums
  }

  /** Replaces the lease of a gateway, and drops those that have lapsed at `now`. */
  setLease(instance: string, lease: Lease | null, now: number): void {
    const leases = new Map([...(this.#leases ?? [])].filter(([owner, one]) => owner !== instance && isRunning(one, now)))
    if (!lease && leases.size === (this.#leases?.size ?? 0)) return
    if (lease) leases.set(instance, lease)
    this.#leases = leases.size > 0 ? leases : null
    this.isChanged = true
  }

  /** Takes an admission out of the lease of its gateway, in memory: the write of the admission replaces the lease. */
  draw({ instance, keyId, tokens }: Reservation): void {
    const lease = this.#leases?.get(instance)
    if (!lease) return
    const keys = keyId in lease.keys ? { ...lease.keys, [keyId]: (lease.keys[keyId] ?? 0) - tokens } : lease.keys
    this.#leases?.set(instance, { ...lease, tokens: lease.tokens - tokens, requests: lease.requests - 1, keys })
  }

  /** A new reservation comes last; one that grows keeps its place. */
  reserve(id: string, reservation: Reservation): void {
    const before = this.#reservations.get(id)
    if (before) this.#count(before, -before.tokens)
    this.#add(id, reservation)
    this.isChanged = true
  }

  /** Removes a reservation and adds its charge to the session, week and key that admitted it, if those windows still run. */
  charge(id: string, reservation: Reservation, tokens: number): void {
    this.#reservations = removeEntry(this.#reservations, id)
    this.#count(reservation, -reservation.tokens)
    this.isChanged = true
    const { session, weekly, keys } = this
    if (session && session.start === reservation.session) this.session = { ...session, used: session.used + tokens }
    if (weekly.n !== reservation.week || tokens === 0) return
    this.weekly = { ...weekly, used: weekly.used + tokens }
    const counter = keys[reservation.keyId]
    keys[reservation.keyId] = { ...counter, week: weekly.n, used: (counter?.used ?? 0) + tokens }
  }

  /** The record as it is now at the time `at`, which shares nothing that changes. */
  toRecord(at: number): Subscription {
    // V8 gives an object a hidden class for every new name; one without a prototype is a dictionary from the start.
    const reservations = Object.create(null) as Record<string, Reservation>
    for (const [id, reservation] of this.#reservations) reservations[id] = reservation
    const { rate, session, weekly, learned } = this
    const { leases: _before, ...kept } = this.#account
    const leases = this.#leases && { leases: Object.fromEntries(this.#leases) }
    const account = { ...kept, ...leases, session, weekly, usage: { ...this.usage }, keys: { ...this.keys }, reservations, ...learned }
    return { ...this.record, at, rate, coding: account }
  }

  #add(id: string, reservation: Reservation): void {
    this.#reservations.set(id, reservation)
    this.#count(reservation, reservation.tokens)
  }

  #count({ session, week, keyId }: Reservation, tokens: number): void {
    if (session === this.session?.start) this.#inSession += tokens
    if (week !== this.weekly.n) return
    this.#inWeek += tokens
    this.#inWeekByKey.set(keyId, (this.#inWeekByKey.get(keyId) ?? 0) + tokens)
  }
}

/** One that ends later than any was given for is of a wrong clock, and holds nothing back. */
function isRunning({ until }: Lease, now: number): boolean {
  return until > now && until <= now + LEASE_MS + MAX_SKEW_MS
}
