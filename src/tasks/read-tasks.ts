/** Reads of a tenant's tasks, for the Media API and for MCP. */
import { Failure } from '../domain/errors.ts'
import { queuePosition, queuePositions } from '../domain/subscription/task-queue.ts'
import type { Subscription } from '../domain/subscription/subscription.ts'
import { FINAL, type Task } from '../domain/task.ts'
import { publicRecord } from './public-record.ts'
import type { TaskContext } from './task-context.ts'

/** The tenant's own visible task. Throws `not_found` for any other id, and for a task of another collection when `object` is given. */
export async function findTask({ store }: Pick<TaskContext, 'store'>, tenant: string, id: string, object?: Task['object']): Promise<Task> {
  const task = await store.task(tenant, id)
  if (!task || (object && task.object !== object) || task.state === 'pending' || task.state === 'rejected') throw new Failure('not_found')
  return task
}

/** The public record of a task. `known`, a subscription record that was just read, saves a read where it has the task's hold. */
export async function recordOf({ store, link }: Pick<TaskContext, 'store' | 'link'>, task: Task, known: Subscription | null = null): Promise<Record<string, unknown>> {
  const isKnown = known?.media?.holds[task.id] !== undefined
  const position = task.state === 'queued' ? queuePosition(isKnown ? known : await store.subscription(task.subscription), task.id) : null
  return publicRecord(task, position, link)
}

/** The public records of many tasks: each subscription is read once, and its queue positions are computed once. */
export async function recordsOf({ store, link }: Pick<TaskContext, 'store' | 'link'>, tasks: Task[]): Promise<Record<string, unknown>[]> {
  const queued = new Set(tasks.filter(({ state }) => state === 'queued').map(({ subscription }) => subscription))
  const positions = new Map<string, number>()
  for (const id of queued) for (const [task, position] of queuePositions(await store.subscription(id))) positions.set(task, position)
  return tasks.map((task) => publicRecord(task, positions.get(task.id) ?? null, link))
}

export type Patience = {
  /** Longest wait. */
  ms: number
  /** True once the client has left or the program stops. */
  gone: () => boolean
  /** Resolves after so many milliseconds. */
  pause: (ms: number) => Promise<unknown>
  /** Called with the task after each read. */
  seen?: (task: Task) => void
}

const POLL_MS = 100

/** Polls a task until it is final, the time is over, or the client has left. Returns the task as it was read last. */
export async function untilFinal({ store, clock }: Pick<TaskContext, 'store' | 'clock'>, task: Task, { ms, gone, pause, seen }: Patience): Promise<{ task: Task; final: boolean }> {
  const until = clock() + ms
  for (let latest = task; ; ) {
    seen?.(latest)
    if (FINAL.includes(latest.state)) return { task: latest, final: true }
    const remainingMs = until - clock()
    if (remainingMs <= 0 || gone()) return { task: latest, final: false }
    await pause(Math.min(POLL_MS, remainingMs))
    latest = (await store.task(task.tenant, task.id)) ?? latest
  }
}
