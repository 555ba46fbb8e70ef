/** A command in the queue of its record: it is applied, perhaps again after a failed write, and answers its caller. */
import { Unavailable } from '../../domain/errors.ts'
import type { Answer, Command, CommandName } from '../../domain/subscription/commands.ts'
import type { CurrentRecord } from '../../domain/subscription/current-record.ts'

/** An answer, and its write: `durable` is fulfilled once that is done, and rejects as `Store.change` does. It need not be awaited. */
export type Decided<N extends CommandName> = { answer: Answer<N>; durable: Promise<void> }

/** What is told of a write: one of both, once. */
export type Write = {
  stored(): void
  /** As `Store.change` rejects. */
  lost(error: unknown): void
}

export type QueuedCommand = {
  /** Applies the command and keeps its answer. A command that throws leaves the record alone and fails only its caller. */
  apply(record: CurrentRecord): void
  /** The kept answer is that of the current record, which is not written yet. */
  decided(): void
  /** The kept answer is written. */
  written(): void
  fail(error: unknown): void
  /** On the clock of the queues. */
  deadline: number
  readonly command: Command
}

type CommandOf<N extends CommandName> = Extract<Command, { op: N }>

/** A command, and the time at which its caller gives up. */
export type Call<N extends CommandName> = { command: CommandOf<N>; now: number; deadline: number }

/** A command that is answered once it is written. */
export function changing<N extends CommandName>(call: Call<N>): { queued: QueuedCommand; answer: Promise<Answer<N>> } {
  const { promise: answer, resolve, reject } = Promise.withResolvers<Answer<N>>()
  const { apply, outcome } = applying<N>(call)
  return { answer, queued: { ...call, apply, decided: () => {}, written: () => outcome(resolve, reject), fail: reject } }
}

/** A command that is answered once its answer is known. */
export function deciding<N extends CommandName>(call: Call<N>): { queued: QueuedCommand; answer: Promise<Decided<N>> } {
  const { promise, resolve, reject } = Promise.withResolvers<Decided<N>>()
  const durable = Promise.withResolvers<void>()
  durable.promise.catch(() => {})
  const { apply, outcome } = applying<N>(call)
  let given: Answer<N> | null = null
  const give = (answer: Answer<N>): void => resolve({ answer: (given ??= answer), durable: durable.promise })
  const written = (answer: Answer<N>): void => {
    give(answer)
    if (answer.outcome === given?.outcome) durable.resolve()
    else durable.reject(new DecidedOtherwise())
  }
  const fail = (error: unknown): void => {
    reject(error)
    durable.reject(error)
  }
  return {
    answer: promise,
    queued: { ...call, apply, decided: () => outcome(give, reject), written: () => outcome(written, fail), fail },
  }
}

/** A command that is applied, and answered, before it is queued. A class: each coding request makes two. */
export class AppliedCommand<N extends CommandName> implements QueuedCommand {
  readonly answer: Answer<N>
  readonly deadline: number
  readonly command: CommandOf<N>
  readonly #now: number
  readonly #write: Write
  /** After a failed write. */
  #again: Answer<N> | { error: unknown } | null = null

  constructor(answer: Answer<N>, call: Call<N>, write: Write) {
    this.answer = answer
    this.deadline = call.deadline
    this.command = call.command
    this.#now = call.now
    this.#write = write
  }

  apply(record: CurrentRecord): void {
    try {
      this.#again = record.apply<N>(this.command, this.#now)
    } catch (error) {
      this.#again = { error }
    }
  }

  decided(): void {}

  written(): void {
    const again = this.#again
    if (again === null || ('outcome' in again && isSame(again, this.answer))) tell(() => this.#write.stored())
    else this.fail('error' in again ? again.error : new DecidedOtherwise())
  }

  fail(error: unknown): void {
    tell(() => this.#write.lost(error))
  }
}

/** An admission that reserves less than before is another one: its request would use more than the record counts. */
function isSame(again: Answer<CommandName>, before: Answer<CommandName>): boolean {
  const reservedBy = (answer: object) => ('reserved' in answer ? answer.reserved : undefined)
  return again.outcome === before.outcome && reservedBy(again) === reservedBy(before)
}

/** Tells a caller. What it throws is uncaught, as that of any callback, and neither fails the write nor keeps the others of it from being told. */
function tell(call: () => void): void {
  try {
    call()
  } catch (error) {
    queueMicrotask(() => {
      throw error
    })
  }
}

/** An answer was given before its write, and the record that the write found led to another one. */
export class DecidedOtherwise extends Unavailable {
  constructor() {
    super('store', new Error('the write of an answer was lost'))
  }
}

function applying<N extends CommandName>({ command, now }: Call<N>) {
  let kept: { answer: Answer<N> } | { error: unknown } = { error: null }
  return {
    apply(record: CurrentRecord): void {
      try {
        kept = { answer: record.apply<N>(command, now) }
      } catch (error) {
        kept = { error }
      }
    },
    outcome(resolve: (answer: Answer<N>) => void, reject: (error: unknown) => void): void {
      if ('answer' in kept) resolve(kept.answer)
      else reject(kept.error)
    },
  }
}
