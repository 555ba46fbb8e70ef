/**
 * The lease of this process on one record (`src/domain/subscription/leases.ts`), and the pace at which its queue writes: commands that the lease covers are answered when they are called, and
 * wait for a write that takes many of them.
 */
import type { Command, WantedLease } from '../../domain/subscription/commands.ts'
import type { CurrentRecord } from '../../domain/subscription/current-record.ts'
import { LEASE_MS } from '../../domain/subscription/coding-ledger.ts'
import type { Subscription } from '../../domain/subscription/subscription.ts'
import type { QueuedCommand } from './queued-command.ts'

/** How long a command may wait for its write: with each further gateway longer, so that all of them replace the record some forty times a second; much shorter than a lease lasts. */
const WAIT_MS = 50
const WAIT_PER_GATEWAY_MS = 25
const MAX_WAIT_MS = 400
/** Over this time an admission is found to be one of few, for which waiting would save no write. */
const QUIET_MS = 1_000
/** So many waiting commands are written at once. */
const FULL_PER_GATEWAY = 16
/** Requests of a lease beyond twice those of the last write. */
const SPARE_REQUESTS = 6
const NOTHING: WantedLease = { tokens: 0, requests: 0, keys: {} }

type Demand = {
  instance: string
  requests: number
  tokens: number
  keys: Record<string, { tokens: number; requests: number; cap: number }>
}

export class RecordLease {
  readonly #clock: () => number
  #demand: Demand | null = null
  #gateways = 1
  /** Of the first waiting command. */
  #since = 0
  #waiting = 0
  /** When the last requests asked to be admitted, as many as come in QUIET_MS to a gateway that waits for another one in vain. */
  readonly #asked: number[] = []
  #isUrgent = false
  #hasEnded = false
  #until = Number.NEGATIVE_INFINITY
  #wake: () => void = () => {}

  /** `clock`: monotonic milliseconds. */
  constructor(clock: () => number) {
    this.#clock = clock
  }

  /** A command was queued. `isUrgent`: its caller waits for the write. */
  queued(isUrgent: boolean): void {
    if (this.#waiting++ === 0) this.#since = this.#clock()
    if (isUrgent) this.#isUrgent = true
    if (isUrgent || this.#waiting === 1 || this.#isFull()) this.#wake()
  }

  /** A request asks to be admitted. Whether so few do that none would share its write, however long that waits. */
  asks(): boolean {
    const now = this.#clock()
    const first = this.#asked.at(-Math.floor(QUIET_MS / this.#waitMs())) ?? Number.NEGATIVE_INFINITY
    if (this.#asked.push(now) > QUIET_MS / WAIT_MS) this.#asked.shift()
    return first <= now - QUIET_MS
  }

  /** Waits until the queued commands shall be written; without any, until there are some or the lease has lapsed. Resolves with whether it has waited. */
  async rest(pause: (ms: number) => Promise<unknown>): Promise<boolean> {
    let hasWaited = false
    for (let ms = this.#restMs(); ms > 0; ms = this.#restMs()) {
      hasWaited = true
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#wake = resolve
      await Promise.race([promise, pause(ms)])
    }
    return hasWaited
  }

  /** Commands are being written; `left` are still queued, and urgent: they have waited for this one. */
  taken(left: number): void {
    this.#waiting = left
    this.#isUrgent = left > 0
  }

  /** Renews the lease in a record to which a batch was applied. Whether there is one then. */
  renew(record: CurrentRecord, batch: readonly QueuedCommand[]): boolean {
    this.#demand = demandOf(record.record(), batch, this.#demand)
    if (!this.#demand) return false
    const { instance } = this.#demand
    // At the time of the record, which is that of the last command.
    const answer = record.apply<'lease'>(
      { op: 'lease', instance, wanted: this.#hasEnded ? NOTHING : wantedFor(this.#demand), forMs: LEASE_MS },
      0,
    )
    this.#gateways = Math.max(1, Object.keys(record.record()?.coding?.leases ?? {}).length)
    this.#until = answer.outcome === 'leased' ? this.#clock() + LEASE_MS : Number.NEGATIVE_INFINITY
    return answer.outcome === 'leased'
  }

  /** Whether the lease still runs by the clock of this process: that of the store may have stood still. */
  isHeld(): boolean {
    return this.#until > this.#clock()
  }

  /** Other gateways have leases, and write the record as well. */
  isShared(): boolean {
    return this.#gateways > 1
  }

  /** What is queued is urgent, and the lease is given back with it. */
  end(): void {
    this.#hasEnded = true
    this.#until = Number.NEGATIVE_INFINITY
    this.#isUrgent = true
    this.#wake()
  }

  #isFull(): boolean {
    return this.#waiting >= FULL_PER_GATEWAY * this.#gateways
  }

  #waitMs(): number {
    return Math.min(MAX_WAIT_MS, Math.max(WAIT_MS, WAIT_PER_GATEWAY_MS * this.#gateways))
  }

  #restMs(): number {
    const now = this.#clock()
    if (this.#waiting === 0) return this.#until - now
    if (this.#isUrgent || this.#isFull()) return 0
    return this.#since + this.#waitMs() - now
  }
}

/** A command as it is applied again when it is written: an admission reserves what it has reserved by the lease. */
export function asDecided<C extends Command>(command: C, answer: object): C {
  return command.op === 'admit' && 'reserved' in answer ? { ...command, tokens: answer.reserved } : command
}

/** What was admitted by a batch, or half of what it was before where that is more; null before there was anything. */
function demandOf(record: Subscription | null, batch: readonly QueuedCommand[], before: Demand | null): Demand | null {
  const demand: Demand = { instance: before?.instance ?? '', requests: 0, tokens: 0, keys: {} }
  for (const { command } of batch) {
    const reserved = command.op === 'admit' ? record?.coding?.reservations[command.id] : undefined
    if (command.op !== 'admit' || !reserved) continue
    demand.instance = command.instance
    demand.requests++
    demand.tokens += reserved.tokens
    if (command.keyCap === null) continue
    const key = demand.keys[command.keyId]
    demand.keys[command.keyId] = { tokens: (key?.tokens ?? 0) + reserved.tokens, requests: (key?.requests ?? 0) + 1, cap: command.keyCap }
  }
  if (!before || demand.requests >= before.requests / 2) return demand.requests > 0 ? demand : null
  const { instance, requests, tokens, keys } = before
  const halved = Object.entries(keys).map(([id, key]) => [id, { ...key, tokens: key.tokens / 2, requests: key.requests / 2 }] as const)
  return { instance, requests: requests / 2, tokens: tokens / 2, keys: { ...Object.fromEntries(halved), ...demand.keys } }
}

/** Room for the double of a demand and some requests of its size; nothing for one that has ended. */
function wantedFor(demand: Demand): WantedLease {
  if (demand.requests < 1 / 16) return NOTHING
  const roomFor = ({ tokens, requests }: { tokens: number; requests: number }) =>
    Math.ceil((tokens / requests) * (2 * requests + SPARE_REQUESTS))
  const keys = Object.entries(demand.keys).map(([id, key]) => [id, { tokens: roomFor(key), cap: key.cap }] as const)
  return { tokens: roomFor(demand), requests: Math.ceil(2 * demand.requests) + SPARE_REQUESTS, keys: Object.fromEntries(keys) }
}
