/** Invariants of tasks: state transitions, what may change with them, and that answers to clients stay true. */
import { entriesOf, holdOf, readyOf } from '../../../src/domain/subscription/holds.ts'
import { FINAL, type Task, type TaskState } from '../../../src/domain/task.ts'
import type { Step } from '../scheduler.ts'
import type { Report, Seen } from '../invariant-checker.ts'
import { KINDS } from '../media/accounts.ts'
import { LEASE_MS, QUEUE_MS, UNSERVED } from '../media/worker.ts'
import type { Troubles } from '../world.ts'

const FOLLOWS: Partial<Record<TaskState, TaskState[]>> = {
  queued: ['queued', 'processing', 'settling', 'rejected'],
  processing: ['processing', 'queued', 'settling'],
  settling: ['settling', 'completed', 'failed', 'canceled'],
}

/** An answer that a client got about a task. */
export type ClientAnswer = { what: 'accepted' | 'canceled'; task: Task; key: string | null }

export function openTaskChecks(seen: Seen, report: Report, now: () => number, { outage, skewed }: Troubles) {
  const accepted = new Map<string, ClientAnswer['what']>()
  const byKey = new Map<string, string>()

  function changed(before: Task | null, after: Task, step: Step): void {
    if (!before) {
      if (after.state !== 'queued') report(`task ${after.id} began as ${after.state}`)
      checkIdempotencyKey(after)
      return
    }
    if (FINAL.includes(before.state)) checkUnchanged(before, after)
    else if (!FOLLOWS[before.state]?.includes(after.state)) report(`task ${after.id} went from ${before.state} to ${after.state}`)
    else checkTransition(before, after)
    const { fence } = step.actor
    if (fence?.task === after.id && fence.epoch !== before.epoch) {
      report(`a run with epoch ${fence.epoch} changed task ${after.id}, which is at epoch ${before.epoch}`)
    }
    // The recovery sweeps without a grace.
    const lost = after.lostLeases > before.lostLeases && step.actor.process.name !== 'recovery'
    if (lost && outage && step.since >= outage.until && step.since < outage.until + LEASE_MS) report(`the lease of task ${after.id} was taken back right after an outage`)
    if (after.state === 'rejected' && accepted.has(after.id)) report(`task ${after.id} was accepted, and then rejected`)
  }

  function checkIdempotencyKey(task: Task): void {
    for (const other of seen.tasks.values()) {
      const same = other.idempotency !== null && other.tenant === task.tenant && other.idempotency.key === task.idempotency?.key
      if (same && other.id !== task.id) report(`tasks ${other.id} and ${task.id} have one Idempotency-Key`)
    }
  }

  /** A final task never changes, except that its events are logged and its outbox is cleared. */
  function checkUnchanged(before: Task, after: Task): void {
    const lasting = (task: Task) => JSON.stringify({ ...task, outbox: [], sweepAt: null, eventsLogged: undefined })
    if (lasting(before) !== lasting(after)) {
      report(`task ${after.id} had ended as ${before.state} and changed: ${lasting(before)} to ${lasting(after)}`)
    }
    if (after.outbox.length > before.outbox.length) report(`task ${after.id} has new events after its end`)
  }

  function checkTransition(before: Task, after: Task): void {
    if (after.epoch < before.epoch) report(`the epoch of task ${after.id} went back from ${before.epoch} to ${after.epoch}`)
    if (before.state === 'queued' && after.state === 'processing' && after.epoch <= before.epoch) {
      report(`task ${after.id} began under the old epoch ${after.epoch}`)
    }
    if (before.state === 'processing' && after.epoch !== before.epoch) report(`task ${after.id} changed its epoch while it ran`)
    if (after.progress < before.progress) report(`the progress of task ${after.id} went back from ${before.progress} to ${after.progress}`)
    if (before.outcome && JSON.stringify(before.outcome) !== JSON.stringify(after.outcome)) {
      report(`task ${after.id} changed its outcome ${before.outcome.outcome}`)
    }
    if (after.lostLeases < before.lostLeases) report(`task ${after.id} has fewer lost leases than before`)
    checkJob(before, after)
    checkEstimate(before, after)
    if (before.outcome === null && after.outcome?.outcome === 'failed' && after.outcome.code === 'not_supported') {
      if (after.kind !== UNSERVED) report(`task ${after.id} failed as not supported, but workers take ${after.kind}`)
      if (!skewed && now() - after.createdAt < QUEUE_MS) report(`task ${after.id} failed as not supported ${now() - after.createdAt} ms after its creation`)
    }
    if (!FINAL.includes(after.state) || after.state === 'rejected') return
    if (after.outbox.length > 0 || !after.eventsLogged) report(`task ${after.id} is ${after.state}, and its events are not relayed`)
  }

  /** Raised by its run alone, once that much is held. */
  function checkEstimate(before: Task, after: Task): void {
    if (after.estimatedCost === before.estimatedCost) return
    const held = holdOf(seen.records.get(after.subscription)?.media?.holds, after.id)?.amount ?? 0
    const isRaised = before.state === 'processing' && after.state === 'processing' && after.estimatedCost > before.estimatedCost
    if (!isRaised || after.estimatedCost > (after.extendableTo ?? 0)) report(`the quote of task ${after.id} changed from ${before.estimatedCost} to ${after.estimatedCost}`)
    if (held < after.estimatedCost && held > 0) report(`task ${after.id} is to cost ${after.estimatedCost}, and ${held} is held for it`)
  }

  /** A provider bills each job that it begins: it is resumed until its attempt is over, and a task that is canceled with one pays its share. */
  function checkJob(before: Task, after: Task): void {
    const isTriedAgain = before.state === 'processing' && after.state === 'queued' && after.attempts === before.attempts
    if (isTriedAgain && after.job !== null) report(`task ${after.id} has ${after.job} of an attempt that failed`)
    if (!isTriedAgain && before.job !== null && after.job !== before.job) report(`task ${after.id} has ${after.job ?? 'no job'} instead of ${before.job}`)
    if (before.outcome !== null || after.outcome?.outcome !== 'canceled') return
    const hasBegun = before.state === 'processing' || before.job !== null
    const cost = hasBegun ? Math.ceil(((after.quotedCost ?? after.estimatedCost) * (after.cancelPercent ?? 0)) / 100) : undefined
    if (after.outcome.cost !== cost) report(`task ${after.id} was ${before.state} with ${before.job ?? 'no job'}, and its cancellation costs ${after.outcome.cost ?? 'nothing'}`)
  }

  function answered({ what, task, key }: ClientAnswer): void {
    const stored = seen.tasks.get(task.id)
    if (what === 'canceled' ? task.state !== 'canceled' : task.state === 'rejected') {
      report(`a client was answered ${what} with a task that is ${task.state}`)
    }
    if (!stored || stored.state === 'rejected') {
      report(`a client was answered ${what}, but task ${task.id} is ${stored?.state ?? 'nowhere'}`)
    }
    accepted.set(task.id, what === 'canceled' ? what : (accepted.get(task.id) ?? what))
    if (key === null) return
    const name = `${task.tenant} ${key}`
    const first = byKey.get(name)
    if (first !== undefined && first !== task.id) report(`clients were answered tasks ${first} and ${task.id} for one Idempotency-Key`)
    byKey.set(name, task.id)
  }

  /** Called after the recovery. */
  function checkFinal(): void {
    for (const task of seen.tasks.values()) {
      if (!FINAL.includes(task.state)) report(`task ${task.id} is still ${task.state} after the recovery`)
      if (task.outbox.length > 0) report(`task ${task.id} still has events in its outbox`)
      if (accepted.get(task.id) === 'canceled' && task.state !== 'canceled') {
        report(`a client was answered that task ${task.id} is canceled, but it is ${task.state}`)
      }
    }
    for (const id of accepted.keys()) if (!seen.tasks.has(id)) report(`task ${id} was accepted and is gone`)
    for (const record of seen.records.values()) {
      for (const [id] of entriesOf(record.media?.holds)) {
        report(`${record.id} still holds something for task ${id}, which is ${seen.tasks.get(id)?.state ?? 'nowhere'}`)
      }
      if (record.media?.past.length) report(`${record.id} has not archived period ${record.media.past[0]?.n ?? 0}`)
    }
  }

  /** Called when the sweeps must have closed every gap from before `since`, except in the busy record. */
  function checkSwept(since: number, busy: string | null): void {
    for (const record of seen.records.values()) {
      if (record.id === busy) continue
      for (const [id, { at }] of entriesOf(record.media?.holds)) {
        const state = seen.tasks.get(id)?.state ?? 'nowhere'
        if (at < since && (state === 'nowhere' || FINAL.includes(state))) {
          report(`${record.id} still holds something for task ${id}, which is ${state}, although the sweeps have run`)
        }
      }
    }
    for (const { id, state, subscription, sweepAt } of seen.tasks.values()) {
      if (subscription !== busy && sweepAt !== null && sweepAt < since) report(`task ${id} is ${state} and due, although the sweeps have run`)
    }
  }

  /** Called when claims must have started every task that was held and ready at `since`, except in the busy record. */
  function checkClaimed(since: number, busy: string | null): void {
    for (const { id, media } of seen.records.values()) {
      if (!media || id === busy) continue
      const kinds = media.due.map(({ kind }) => kind).filter((kind) => KINDS.includes(kind))
      const ready = [...readyOf(media.holds, kinds, since)].filter(([, { at }]) => at <= since)
      if (ready.length > 0) report(`a task of ${id} is ready, although claims have been made`)
    }
  }

  return { changed, answered, checkSwept, checkClaimed, checkFinal }
}
