/** Waiting for a task on a client's behalf, and telling how long it may take. */
import type { ServerResponse } from 'node:http'
import type { Store } from '../../src/store/store.ts'
import type { TaskDoors } from '../../src/tasks/doors.ts'
import type { Quote } from '../../src/tasks/submit.ts'
import { FINAL, type Task } from '../../src/tasks/task.ts'

const LOOK_MS = 100

/** Looks at the task until it is final, `ms` have passed, or the client left. Answers the newest that was seen. */
export async function untilFinal({ store, clock }: TaskDoors, task: Task, ms: number, response: ServerResponse): Promise<{ task: Task; final: boolean }> {
  const until = clock() + ms
  for (let latest = task; ; ) {
    if (FINAL.includes(latest.state)) return { task: latest, final: true }
    const remainingMs = until - clock()
    if (remainingMs <= 0 || response.destroyed) return { task: latest, final: false }
    await new Promise((resolve) => setTimeout(resolve, Math.min(LOOK_MS, remainingMs)))
    latest = (await store.task(task.tenant, task.id)) ?? latest
  }
}

const SAMPLES = 10

/**
 * The seconds until a task that is quoted now would begin: how many wait before it, by how many run at once, by how long the tenant's latest tasks of that kind took.
 * Null while there are none to learn from.
 */
export async function expectedWaitSeconds(store: Store, { record, request }: Quote): Promise<number | null> {
  const filter = { object: 'generation', verb: request.verb, states: ['completed'], createdAfter: null, createdBefore: null } as const
  const latest = await store.tasks(record.tenant, { ...filter, states: ['completed'] }, null, SAMPLES)
  if (latest.length === 0) return null
  const meanMs = latest.reduce((sum, { startedAt, endedAt }) => sum + ((endedAt ?? 0) - (startedAt ?? 0)), 0) / latest.length
  const open = Object.keys(record.media?.holds ?? {}).length
  const slots = record.terms.media?.maxConcurrentTasks ?? 1
  return Math.ceil((Math.floor(open / slots) * meanMs) / 1000)
}
