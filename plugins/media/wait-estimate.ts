/** Telling how long a task may wait. */
import type { Store } from '../../src/backends/store/store.ts'
import type { Quote } from '../../src/tasks/quote-and-submit.ts'

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
