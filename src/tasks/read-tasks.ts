/** Reads of a tenant's tasks, for the Media API and for MCP. */
import { Failure } from '../domain/errors.ts'
import { holdOf } from '../domain/subscription/holds.ts'
import { queuePosition } from '../domain/subscription/task-queue.ts'
import type { Subscription } from '../domain/subscription/subscription.ts'
import type { Task } from '../domain/task.ts'
import { publicRecord } from './public-record.ts'
import { endedTask } from './run-outcome.ts'
import type { TaskContext } from './task-context.ts'

/**
 * The tenant's own visible task. Throws `not_found` for any other id, and for a task of another collection when `object` is given. One that settles has ended once its hold is closed: its
 * events may be out before it is written.
 */
export async function findTask(
  { store, clock }: Pick<TaskContext, 'store' | 'clock'>,
  tenant: string,
  id: string,
  object?: Task['object'],
): Promise<Task> {
  const task = await store.task(tenant, id)
  if (!task || (object && task.object !== object) || task.state === 'pending' || task.state === 'rejected')
    throw new Failure('not_found', { message: 'There is no such task.' })
  if (task.state !== 'settling') return task
  const record = await store.subscription(task.subscription)
  return holdOf(record?.media?.holds, id) ? task : endedTask(task, clock())
}

/** The public record of a task. `known`, a subscription record that was just read, saves a read where it has the task's hold. */
export async function recordOf(
  { store, link }: Pick<TaskContext, 'store' | 'link'>,
  task: Task,
  known: Subscription | null = null,
): Promise<Record<string, unknown>> {
  const isKnown = holdOf(known?.media?.holds, task.id) !== undefined
  const position = task.state === 'queued' ? queuePosition(isKnown ? known : await store.subscription(task.subscription), task.id) : null
  return publicRecord(task, position, link)
}

/** The public records of many tasks: each subscription is read once. */
export async function recordsOf({ store, link }: Pick<TaskContext, 'store' | 'link'>, tasks: Task[]): Promise<Record<string, unknown>[]> {
  const records = new Map<string, Subscription | null>()
  for (const { state, subscription } of tasks)
    if (state === 'queued' && !records.has(subscription)) records.set(subscription, await store.subscription(subscription))
  return tasks.map((task) => publicRecord(task, queuePosition(records.get(task.subscription) ?? null, task.id), link))
}
