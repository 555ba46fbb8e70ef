/** Sweep of webhook deliveries that wait for another one which was attempted. Earlier versions could store such a delivery after that attempt, when nothing released it any more. */
import { overlooked } from './outbox.ts'
import type { TaskContext } from './task-context.ts'

/** A younger delivery waits for a first attempt that is probably still to come. */
const YOUNG_MS = 60_000

/** `next`: where the next pass continues; empty at the end, to begin again. */
export type DeliveriesSwept = { released: number; next: string }

/** Examines up to `limit` waiting deliveries with ids above `after`, and makes due those that nothing else will release. */
export async function sweepDeliveries(
  { store, clock }: Pick<TaskContext, 'store' | 'clock'>,
  after: string,
  limit: number,
): Promise<DeliveriesSwept> {
  const waiting = await store.waitingDeliveries(after, limit)
  let released = 0
  for (const { id, taskId, createdAt } of waiting) {
    if (clock() - createdAt < YOUNG_MS) continue
    const isOverlooked = overlooked(await store.deliveries(taskId)).some((one) => one.id === id)
    if (isOverlooked && (await store.releaseDelivery(id, clock()))) released++
  }
  return { released, next: waiting.length < limit ? '' : (waiting.at(-1)?.id ?? '') }
}
