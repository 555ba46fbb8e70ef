/** The tasks of a subscription that a worker may claim now, for the messages of the broker. Pure. */
import { holdOf, readyOf } from './holds.ts'
import type { Hold, Subscription } from './subscription.ts'

export type ReadyTask = {
  task: string
  /** Media kind or operation. */
  kind: string
  /** The epoch of its next claim. */
  attempt: number
  /** Epoch milliseconds. */
  readyAt: number
  /** Of the subscription. */
  maxConcurrentTasks: number
}

/**
 * The oldest ready tasks that may run beside those that run, at most `limit` of each kind or operation. The record chooses by itself which
 * task a claim gets: these are only named. Empty while `maxConcurrentTasks` run.
 */
export function readyTasks(record: Subscription | null, now: number, limit = 1): ReadyTask[] {
  const { media } = record ?? {}
  const maxConcurrentTasks = record?.terms.media?.maxConcurrentTasks ?? 0
  const kinds = media?.due.filter(({ readyAt }) => readyAt <= now).map(({ kind }) => kind) ?? []
  if (!media || kinds.length === 0) return []
  const most = Math.max(0, Math.min(limit, maxConcurrentTasks - media.holds.running.size))
  return kinds.flatMap((kind) =>
    readyOf(media.holds, [kind], now)
      .take(most)
      .map(([task, hold]) => describe(task, hold, maxConcurrentTasks))
      .toArray(),
  )
}

/** A task that was just held. */
export function heldTask(record: Subscription, task: string): ReadyTask | null {
  const hold = holdOf(record.media?.holds, task)
  return hold?.run === null ? describe(task, hold, record.terms.media?.maxConcurrentTasks ?? 1) : null
}

function describe(task: string, { kind, epoch, readyAt, at }: Hold, maxConcurrentTasks: number): ReadyTask {
  return { task, kind, attempt: epoch + 1, readyAt: readyAt || at, maxConcurrentTasks }
}

/** The answer of a change after which `record` has ready tasks names the oldest of each kind. */
export function withReady<A extends object>(answer: A, record: Subscription, now: number): A & { ready?: ReadyTask[] } {
  const ready = readyTasks(record, now)
  return { ...answer, ...(ready.length > 0 && { ready }) }
}
