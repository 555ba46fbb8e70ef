/** `tollgate purge`: removes old tasks, coding requests and events now, instead of when their retention ends. */
import { FINAL } from '../domain/task.ts'
import type { Store } from '../backends/store/store.ts'
import { readAll } from '../tasks/paged-reads.ts'

/** What ended, arrived or was logged before these times (epoch milliseconds); null keeps all. Coding requests are kept as long as tasks. */
export type Before = { tasks: number | null; events: number | null }
export type Purged = { tasks: number; requests: number; events: number }

const BATCH = 500

/** Counts what `purge` would remove. */
export async function purgeable(store: Store, before: Before): Promise<Purged> {
  const { tasks, events } = before
  const counts = { tasks: 0, requests: tasks === null ? 0 : await store.requestsBefore(tasks), events: 0 }
  if (tasks !== null)
    for await (const task of readAll(store, 'tasks'))
      if (FINAL.includes(task.state) && task.outbox.length === 0 && (task.endedAt ?? Infinity) < tasks) counts.tasks++
  if (events !== null) for await (const event of readAll(store, 'events')) if (event.loggedAt < events) counts.events++
  return counts
}

/** Removes them, tasks with their deliveries, in batches. */
export async function purge(store: Store, { tasks, events }: Before): Promise<Purged> {
  return {
    tasks: tasks === null ? 0 : await untilDone(() => store.removeTasks(tasks, BATCH)),
    requests: tasks === null ? 0 : await untilDone(() => store.removeRequests(tasks, BATCH)),
    events: events === null ? 0 : await untilDone(() => store.removeEvents(events, BATCH)),
  }
}

async function untilDone(removeBatch: () => Promise<number>): Promise<number> {
  for (let removed = 0; ;) {
    const count = await removeBatch()
    removed += count
    if (count < BATCH) return removed
  }
}
