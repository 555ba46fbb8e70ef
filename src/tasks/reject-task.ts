/** Rejects a task whose creation stopped before its hold, or was refused it: nobody sees it any more, and its Idempotency-Key is free. */
import { holdOf } from '../domain/subscription/holds.ts'
import type { Subscription } from '../domain/subscription/subscription.ts'
import type { Task } from '../domain/task.ts'
import { removeInlineSources } from './inline-sources.ts'
import { release } from './release-money-hold.ts'
import type { TaskContext } from './task-context.ts'

/** Longer than any request, and than the clocks of two machines differ. */
export const REQUEST_MS = 10 * 60_000

/** Whether the creation of a task may have stopped before its hold. An older task without one was accepted, and has lost it. */
export function isUnheld(task: Task, record: Subscription | null, now: number): boolean {
  if (task.state === 'pending') return true
  const isNew = task.state === 'queued' && task.epoch === 0 && now - task.createdAt < REQUEST_MS
  return isNew && !holdOf(record?.media?.holds, task.id)
}

/** Rejects a task that nobody has confirmed or begun since it was read, and releases its hold if there is one; otherwise false. */
export async function reject(context: TaskContext, task: Task): Promise<boolean> {
  const guard = { from: ['pending', 'queued'], epochBelow: 1, sweepAt: task.sweepAt } as const
  const facts = { idempotency: null, sweepAt: null, endedAt: context.clock() }
  if (!(await context.store.moveTask(task.id, guard, 'rejected', facts))) return false
  await release(context, task.subscription, task.id)
  await removeInlineSources(context, task)
  return true
}
