/** The record of a subscription in memory, to which commands are applied in turn: as `reduce` does, without a new record for each of those that coding requests make. */
import { aheadMs, heal } from './clock-healing.ts'
import { CodingLedger } from './coding-ledger.ts'
import type { Answer, Command, CommandName } from './commands.ts'
import { reduce } from './reducer.ts'
import type { Subscription } from './subscription.ts'
import type { UsageRecord } from '../usage-records.ts'
import { applyByLease, applyToLedger, isCoding } from './token-reservations.ts'

export class CurrentRecord {
  readonly #id: string
  /** Undefined where the ledger is newer. */
  #record: Subscription | null | undefined
  #ledger: CodingLedger | null = null
  #at: number
  /** Usage records since the last version; null: none are made. */
  readonly #made: UsageRecord[] | null

  /** `record`: that of subscription `id`; null: there is none yet. */
  constructor(id: string, record: Subscription | null, recordsUsage = false) {
    this.#id = id
    this.#record = record
    this.#at = record?.at ?? 0
    this.#made = recordsUsage ? [] : null
  }

  /** Applies one command at `now`; a command that throws changes nothing. */
  apply<N extends CommandName>(command: Extract<Command, { op: N }>, now: number): Answer<N>
  apply(command: Command, now: number): Answer<CommandName> {
    const at = Math.max(now, this.#at)
    const ledger = isCoding(command) ? this.#ledgerAt(at) : null
    if (!ledger || !isCoding(command)) {
      const step = reduce<CommandName>(this.record(), command, now, this.#id, this.#made)
      if (step.record !== this.record()) this.#replace(step.record)
      return step.answer
    }
    ledger.isChanged = false
    const answer = applyToLedger(ledger, command, at)
    if (ledger.isChanged) this.#changed(ledger, at)
    return answer
  }

  /** Applies a command that a lease of its gateway covers; null where none does, and nothing is changed. */
  applyByLease<N extends CommandName>(command: Extract<Command, { op: N }>, now: number): Answer<N> | null
  applyByLease(command: Command, now: number): Answer<CommandName> | null {
    if (command.op !== 'admit' && command.op !== 'settle') return null
    const at = Math.max(now, this.#at)
    const ledger = this.#ledgerAt(at)
    const answer = ledger && applyByLease(ledger, command, at)
    if (ledger && answer) this.#changed(ledger, at)
    return answer
  }

  /** Takes back a time that lies ahead of the store's, `now`, which is read after the record; null while it is unknown. */
  heal(now: number | null): this {
    const record = now === null || aheadMs({ at: this.#at }, now) === 0 ? null : this.record()
    if (now !== null && record) this.#replace(heal(record, now))
    return this
  }

  /** The record as it is now; the same object as before where no command has changed it. */
  record(): Subscription | null {
    if (this.#record === undefined) this.#record = this.#ledger?.toRecord(this.#at) ?? null
    return this.#record
  }

  /** Gives it the version with which it is written, with the usage records since the last one and those of `unstored`. */
  withVersion(version: number, unstored: UsageRecord[] = []): Subscription {
    const { outbox: _stored, ...facts } = this.record() as Subscription
    const outbox = [...unstored, ...(this.#made?.splice(0) ?? [])]
    const record: Subscription = { ...facts, version, ...(outbox.length > 0 ? { outbox } : {}) }
    if (this.#ledger) this.#ledger.record = record
    return (this.#record = record)
  }

  /** A window that has ended stays as it is until a command changes something. */
  #ledgerAt(at: number): CodingLedger | null {
    return this.#ledger?.isOver(at) === false ? this.#ledger : CodingLedger.open(this.record(), at, this.#made)
  }

  #changed(ledger: CodingLedger, at: number): void {
    this.#ledger = ledger
    this.#record = undefined
    this.#at = at
  }

  #replace(record: Subscription | null): void {
    this.#record = record
    this.#ledger = null
    this.#at = record?.at ?? 0
  }
}
