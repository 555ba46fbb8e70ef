/** Tasks from write to write: which states follow which, what may change with them, and what was promised to clients. */
import { FINAL, type Task, type TaskState } from '../../../src/domain/task.ts'
import { eventsOf } from '../../../src/verify/task-invariants.ts'
import type { Step } from '../scheduler.ts'
import type { Say, Seen } from '../witness.ts'

const FOLLOWS: Partial<Record<TaskState, TaskState[]>> = {
  pending: ['queued', 'rejected'],
  queued: ['queued', 'processing', 'settling'],
  processing: ['processing', 'queued', 'settling'],
  settling: ['completed', 'failed', 'canceled'],
}

/** A client was told of this task: that it is accepted, or that it is canceled. */
export type Promised = { what: 'accepted' | 'canceled'; task: Task; key: string | null }

export function openStory(seen: Seen, say: Say) {
  const accepted = new Map<string, Promised['what']>()
  const byKey = new Map<string, string>()

  function moved(before: Task | null, after: Task, step: Step): void {
    if (!before) {
      if (after.state !== 'pending') say(`task ${after.id} began as ${after.state}`)
      oneForItsKey(after)
      return
    }
    if (FINAL.includes(before.state)) unchanged(before, after)
    else if (!FOLLOWS[before.state]?.includes(after.state)) say(`task ${after.id} went from ${before.state} to ${after.state}`)
    else advanced(before, after)
    const { fence } = step.actor
    if (fence?.task === after.id && fence.epoch !== before.epoch) {
      say(`a run with epoch ${fence.epoch} changed task ${after.id}, which is at epoch ${before.epoch}`)
    }
    if (after.state === 'rejected' && accepted.has(after.id)) say(`task ${after.id} was accepted, and then rejected`)
  }

  function oneForItsKey(task: Task): void {
    for (const other of seen.tasks.values()) {
      const same = other.idempotency !== null && other.tenant === task.tenant && other.idempotency.key === task.idempotency?.key
      if (same && other.id !== task.id) say(`tasks ${other.id} and ${task.id} have one Idempotency-Key`)
    }
  }

  /** What has ended is never another thing; only its outbox is emptied. */
  function unchanged(before: Task, after: Task): void {
    const lasting = (task: Task) => JSON.stringify({ ...task, outbox: [], sweepAt: null })
    if (lasting(before) !== lasting(after)) {
      say(`task ${after.id} had ended as ${before.state} and changed: ${lasting(before)} to ${lasting(after)}`)
    }
    if (after.outbox.length > before.outbox.length) say(`task ${after.id} announces its end again`)
  }

  function advanced(before: Task, after: Task): void {
    if (after.epoch < before.epoch) say(`the epoch of task ${after.id} went back from ${before.epoch} to ${after.epoch}`)
    if (before.state === 'queued' && after.state === 'processing' && after.epoch <= before.epoch) {
      say(`task ${after.id} began under the old epoch ${after.epoch}`)
    }
    if (before.state === 'processing' && after.epoch !== before.epoch) say(`task ${after.id} changed its epoch while it ran`)
    if (after.progress < before.progress) say(`the progress of task ${after.id} went back from ${before.progress} to ${after.progress}`)
    if (before.outcome && JSON.stringify(before.outcome) !== JSON.stringify(after.outcome)) {
      say(`task ${after.id} had come to be ${before.outcome.outcome} and changed its mind`)
    }
    if (after.lostLeases < before.lostLeases) say(`task ${after.id} forgot a lost lease`)
    if (!FINAL.includes(after.state) || after.state === 'rejected') return
    const events = after.outbox.map(({ event }) => event)
    if (String(events) !== String(eventsOf(after))) {
      say(`task ${after.id} is ${after.state} and announces ${events.join(', ') || 'nothing'}`)
    }
  }

  function answered({ what, task, key }: Promised): void {
    const stored = seen.tasks.get(task.id)
    if (what === 'canceled' ? task.state !== 'canceled' : task.state === 'pending' || task.state === 'rejected') {
      say(`a client was answered ${what} with a task that is ${task.state}`)
    }
    if (!stored || stored.state === 'pending' || stored.state === 'rejected') {
      say(`a client was answered ${what}, but task ${task.id} is ${stored?.state ?? 'nowhere'}`)
    }
    accepted.set(task.id, what === 'canceled' ? what : (accepted.get(task.id) ?? what))
    if (key === null) return
    const name = `${task.tenant} ${key}`
    const first = byKey.get(name)
    if (first !== undefined && first !== task.id) say(`clients were answered tasks ${first} and ${task.id} for one Idempotency-Key`)
    byKey.set(name, task.id)
  }

  /** All trouble is over and the sweeps have run. */
  function atRest(): void {
    for (const task of seen.tasks.values()) {
      if (!FINAL.includes(task.state)) say(`task ${task.id} is still ${task.state} when everything has come to rest`)
      if (task.outbox.length > 0) say(`task ${task.id} still has something to announce`)
      if (accepted.get(task.id) === 'canceled' && task.state !== 'canceled') {
        say(`a client was told that task ${task.id} is canceled, but it is ${task.state}`)
      }
    }
    for (const id of accepted.keys()) if (!seen.tasks.has(id)) say(`task ${id} was accepted and is gone`)
    for (const record of seen.records.values()) {
      for (const id of Object.keys(record.media?.holds ?? {})) {
        say(`${record.id} still holds something for task ${id}, which is ${seen.tasks.get(id)?.state ?? 'nowhere'}`)
      }
      if (record.media?.past.length) say(`${record.id} has not archived period ${record.media.past[0]?.n ?? 0}`)
    }
  }

  /** The sweeps have run long enough for every hold that was taken before `since`. */
  function noOrphans(since: number): void {
    for (const record of seen.records.values()) {
      for (const [id, { at }] of Object.entries(record.media?.holds ?? {})) {
        const state = seen.tasks.get(id)?.state ?? 'nowhere'
        if (at < since && (state === 'nowhere' || FINAL.includes(state))) {
          say(`${record.id} still holds something for task ${id}, which is ${state}, and the sweeps have run`)
        }
      }
    }
  }

  return { moved, answered, noOrphans, atRest }
}
