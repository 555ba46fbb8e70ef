/** `tollgate tasks stuck` and `tollgate tasks requeue`: open tasks that are old, and taking a run from its worker. */
import { tenantOf } from '../domain/plans.ts'
import { entriesOf } from '../domain/subscription/holds.ts'
import { FINAL, type Task } from '../domain/task.ts'
import { handBack } from '../tasks/run-outcome.ts'
import type { TaskContext } from '../tasks/task-context.ts'
import type { Store } from '../backends/store/store.ts'
import { readAll } from '../tasks/paged-reads.ts'

export type OpenTask = Pick<Task, 'id' | 'tenant' | 'subscription' | 'kind' | 'state' | 'attempts' | 'lostLeases'> & {
  ageMs: number
  waitsFor: string
}

/**
 * Open tasks that were created `olderThanMs` before `now` or earlier, oldest first, each with what it waits for. Reads the tasks of open
 * holds, and those that a sweep is about to examine.
 */
export async function stuckTasks(store: Store, now: number, olderThanMs: number): Promise<OpenTask[]> {
  const found = new Map<string, OpenTask>()
  for await (const { id: subscription, media, terms } of readAll(store, 'subscriptions')) {
    const isFull = (media?.holds.running.size ?? 0) >= (terms.media?.maxConcurrentTasks ?? Infinity)
    for (const [id, { readyAt }] of entriesOf(media?.holds)) {
      const task = await store.task(tenantOf(subscription), id)
      if (task) keep(task, readyAt, isFull)
    }
  }
  // A pending task has no hold yet.
  const [due = []] = await store.tasksDue(now, [{ states: OPEN, after: '', limit: LIMIT, perTenant: LIMIT }])
  for (const task of due) if (!found.has(task.id)) keep(task, 0, false)

  function keep(task: Task, readyAt: number, isFull: boolean): void {
    if (FINAL.includes(task.state) || now - task.createdAt < olderThanMs) return
    const { id, tenant, subscription, kind, state, attempts, lostLeases } = task
    found.set(id, {
      id,
      tenant,
      subscription,
      kind,
      state,
      attempts,
      lostLeases,
      ageMs: now - task.createdAt,
      waitsFor: waitsFor(task, now, readyAt, isFull),
    })
  }
  return [...found.values()].sort((a, b) => b.ageMs - a.ageMs)
}

const OPEN = ['pending', 'queued', 'processing', 'settling'] as const
const LIMIT = 10_000

function waitsFor({ state, sweepAt }: Task, now: number, readyAt: number, isFull: boolean): string {
  if (state === 'queued')
    return readyAt > now ? 'its next attempt' : isFull ? 'a free slot of its plan (maxConcurrentTasks)' : 'a worker that takes its kind'
  if (state === 'processing') return sweepAt !== null && sweepAt < now ? 'the sweep, its lease has expired' : 'its run'
  return 'the sweep'
}

/** `queued`: it was taken from its worker. `not_running`: it is in another state, and nothing was changed. */
export type Requeued = { outcome: 'queued' } | { outcome: 'not_running'; state: Task['state'] } | { outcome: 'not_found' }

/** Queues a running task again: its worker is refused from then on, and the run costs no attempt. */
export async function requeueTask(
  context: Pick<TaskContext, 'store' | 'clock' | 'publish'>,
  tenant: string,
  id: string,
): Promise<Requeued> {
  const task = await context.store.task(tenant, id)
  if (!task) return { outcome: 'not_found' }
  if (task.state !== 'processing') return { outcome: 'not_running', state: task.state }
  const { outcome } = await handBack(context, task)
  return outcome === 'handed_back'
    ? { outcome: 'queued' }
    : { outcome: 'not_running', state: (await context.store.task(tenant, id))?.state ?? task.state }
}
