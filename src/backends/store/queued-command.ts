/** A command in the queue of its record: it is applied, perhaps again after a failed write, and answers its caller. */
import { Unavailable } from '../../domain/errors.ts'
import type { Answer, Command, CommandName } from '../../domain/subscription/commands.ts'
import { reduce } from '../../domain/subscription/reducer.ts'
import type { Subscription } from '../../domain/subscription/subscription.ts'

/** An answer, and its write: `durable` is fulfilled once that is done, and rejects as `Store.change` does. It need not be awaited. */
export type Decided<N extends CommandName> = { answer: Answer<N>; durable: Promise<void> }

export type QueuedCommand = {
  /** Applies the command and keeps its answer; returns the next record. A command that throws leaves the record alone and fails only its caller. */
  apply(record: Subscription | null): Subscription | null
  /** The kept answer is that of the current record, which is not written yet. */
  decided(): void
  /** The kept answer is written. */
  written(): void
  fail(error: unknown): void
  /** On the clock of the queues. */
  deadline: number
}

type CommandOf<N extends CommandName> = Extract<Command, { op: N }>

/** A command that is answered once it is written. */
export function changing<N extends CommandName>(
  id: string,
  command: CommandOf<N>,
  now: number,
  deadline: number,
): { queued: QueuedCommand; answer: Promise<Answer<N>> } {
  const { promise: answer, resolve, reject } = Promise.withResolvers<Answer<N>>()
  const { apply, outcome } = applying<N>(id, command, now)
  return { answer, queued: { apply, decided: () => {}, written: () => outcome(resolve, reject), fail: reject, deadline } }
}

/** A command that is answered once its answer is known. */
export function deciding<N extends CommandName>(
  id: string,
  command: CommandOf<N>,
  now: number,
  deadline: number,
): { queued: QueuedCommand; answer: Promise<Decided<N>> } {
  const { promise, resolve, reject } = Promise.withResolvers<Decided<N>>()
  const durable = Promise.withResolvers<void>()
  durable.promise.catch(() => {})
  const { apply, outcome } = applying<N>(id, command, now)
  let given: Answer<N> | null = null
  const give = (answer: Answer<N>): void => resolve({ answer: (given ??= answer), durable: durable.promise })
  const written = (answer: Answer<N>): void => {
    give(answer)
    // The write of the given answer failed, and the record that was read then led to another one.
    if (answer.outcome === given?.outcome) durable.resolve()
    else durable.reject(new Unavailable('store', new Error('the write of an answer was lost')))
  }
  const fail = (error: unknown): void => {
    reject(error)
    durable.reject(error)
  }
  return { answer: promise, queued: { apply, decided: () => outcome(give, reject), written: () => outcome(written, fail), fail, deadline } }
}

function applying<N extends CommandName>(id: string, command: CommandOf<N>, now: number) {
  let kept: { answer: Answer<N> } | { error: unknown } = { error: null }
  return {
    apply(record: Subscription | null): Subscription | null {
      try {
        const step = reduce<N>(record, command, now, id)
        kept = { answer: step.answer }
        return step.record
      } catch (error) {
        kept = { error }
        return record
      }
    },
    outcome(resolve: (answer: Answer<N>) => void, reject: (error: unknown) => void): void {
      if ('answer' in kept) resolve(kept.answer)
      else reject(kept.error)
    },
  }
}
