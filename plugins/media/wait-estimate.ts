/** Estimate of the time in the queue, for quotes. */
import type { Store } from '../../src/backends/store/store.ts'
import { NO_HOLDS, waitingIn } from '../../src/domain/subscription/holds.ts'
import type { Quote } from '../../src/tasks/quote.ts'

const SAMPLES = 10

/**
 * Seconds until a task that is quoted now would start: the open tasks before it, divided by the concurrent ones, times the mean duration of
 * the tenant's latest tasks of that kind or operation. Null while there are none.
 */
export async function expectedWaitSeconds(store: Store, { record, object, kind }: Quote): Promise<number | null> {
  const latest = await store.tasks(
    record.tenant,
    { object, kind, status: 'completed', createdAfter: null, createdBefore: null },
    null,
    SAMPLES,
  )
  if (latest.length === 0) return null
  const meanMs = latest.reduce((sum, { startedAt, endedAt }) => sum + ((endedAt ?? 0) - (startedAt ?? 0)), 0) / latest.length
  const { holds = NO_HOLDS } = record.media ?? {}
  const open = waitingIn(holds) + holds.running.size
  const slots = record.terms.media?.maxConcurrentTasks ?? 1
  return Math.ceil((Math.floor(open / slots) * meanMs) / 1000)
}
