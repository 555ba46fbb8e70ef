/** The end of a task: its state is claimed first (`settling`), then its hold is closed, then it becomes final, with its events in the same write. */
import { Failure } from '../domain/errors.ts'
import { envelope, refundedData } from '../domain/webhooks.ts'
import type { OutboxEvent, Task, TaskGuard, TaskOutcome } from '../domain/task.ts'
import { endData } from './end-data.ts'
import { relay } from './outbox.ts'
import { publishReady } from './publish-ready.ts'
import { RELAY_MS, SETTLING_MS, type TaskContext } from './task-context.ts'
import { removeUploads } from './uploads.ts'

/** Claims the end of a task for one outcome, and settles it. Null when the guard refuses: another run has the task, or it has ended. */
export async function end(context: TaskContext, id: string, guard: TaskGuard, outcome: TaskOutcome): Promise<Task | null> {
  const settling = await context.store.moveTask(id, guard, 'settling', { outcome, sweepAt: context.clock() + SETTLING_MS })
  return settling && settle(context, settling)
}

/** Closes the hold of a task that is `settling` and makes it final. Every step may be repeated, by a sweep or concurrently. */
export async function settle(context: TaskContext, task: Task): Promise<Task | null> {
  const { store, clock } = context
  const { outcome } = task
  if (!outcome) throw new TypeError(`task ${task.id} is settling without an outcome`)
  // The charge is computed from the task, never from the answer of `close`, which a repeated settlement does not get again.
  const charge = outcome.outcome === 'completed' ? Math.min(Math.max(outcome.cost, 0), task.estimatedCost) : 0
  const closed = await store.change(
    task.subscription,
    { op: 'close', task: task.id, actual: outcome.outcome === 'completed' ? charge : null, epoch: task.epoch },
    clock(),
  )
  if (closed.outcome === 'closed') {
    context.moved('capture', task.tenant, charge)
    context.moved('void', task.tenant, task.estimatedCost - charge)
  }
  publishReady(context, task.subscription, closed.ready)
  await removeUploads(context, task)
  const now = clock()
  const ended: Task = {
    ...task,
    state: outcome.outcome,
    actualCost: charge,
    refundAmount: task.estimatedCost - charge,
    endedAt: Math.max(now, task.createdAt),
    progress: outcome.outcome === 'completed' ? 100 : task.progress,
  }
  const outbox = events(context, ended, closed.available)
  const final = await store.moveTask(task.id, { from: ['settling'] }, outcome.outcome, {
    actualCost: ended.actualCost,
    refundAmount: ended.refundAmount,
    endedAt: ended.endedAt,
    progress: ended.progress,
    outbox,
    sweepAt: outbox.length > 0 ? now + RELAY_MS : null,
  })
  if (!final) return store.task(task.tenant, task.id)
  if (outbox.length > 0) await relay(context, final)
  return final
}

/** The events of the contract (specification, section 3). A cancellation has none. */
function events(context: TaskContext, task: Task, available: number): OutboxEvent[] {
  const at = task.endedAt ?? task.createdAt
  const data = endData(task, context.link)
  if (data === null) return []
  if (task.state === 'completed') return [{ event: 'task.completed', body: envelope('task.completed', at, data) }]
  const refunded = refundedData({ taskId: task.id, refundMicro: task.refundAmount ?? 0, newBalanceMicro: available })
  return [
    { event: 'task.failed', body: envelope('task.failed', at, data) },
    { event: 'task.refunded', body: envelope('task.refunded', at, refunded) },
  ]
}

/** Cancels a task that is queued or processing: its hold is released at once, and its run is aborted at the next renewal of the lease. Throws `already_final` when it has ended. */
export async function cancel(context: TaskContext, task: Task): Promise<Task> {
  const ended = await end(context, task.id, { from: ['queued', 'processing'] }, { outcome: 'canceled' })
  if (ended) return ended
  const now = await context.store.task(task.tenant, task.id)
  if (now?.state === 'settling' && now.outcome?.outcome === 'canceled') return (await settle(context, now)) ?? now
  throw new Failure('already_final')
}
