/**
 * Redelivery and replay in MongoDB: a compare-and-set of single deliveries, so that an attempt under way or a claim excludes it. A process
 * that ends before it scheduled the queue has answered nobody; the repeated request schedules it.
 */
import { randomUUID } from 'node:crypto'
import { isSelected, redeliver, type Redelivery } from '../../../domain/webhook-redelivery.ts'
import type { Delivery, ReplayPosition, ReplayRange } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import { batchChanges } from './bulk-commands.ts'
import type { Database } from './database.ts'
import { readMarked, type Marked, type StoredDelivery } from './deliveries.ts'
import type { DeliveryQueues } from './delivery-queues.ts'
import type { Indexes } from './indexes.ts'

export const redeliveryIndexes = {
  deliveries: [
    // replay
    { name: 'created', key: { tenant: 1, createdAt: 1, _id: 1 } },
  ],
} satisfies Indexes

/** Deliveries of a replay that are written at once: two commands. */
const CONCURRENT = 64

export function openRedelivery(database: Database, queues: DeliveryQueues): Pick<Store, 'redeliver' | 'replay'> {
  const deliveries = database.collection<StoredDelivery>('deliveries')
  const change = batchChanges(deliveries)

  /** Null when it changed since it was read. */
  async function put(
    { delivery: before, write }: Marked,
    now: number,
  ): Promise<{ outcome: Redelivery['outcome']; delivery: Delivery } | null> {
    const next = redeliver(before, now)
    if (next.outcome !== 'due') return { outcome: next.outcome, delivery: before }
    const { id, state, nextAttemptAt, redelivery } = next.delivery
    const due = { _id: id, state, nextAttemptAt, redelivery, claimableAt: now, write: randomUUID() }
    return (await change({ next: due, last: write, when: { leaseUntil: null } })) === 'lost' ? null : next
  }

  async function one(tenant: string, id: string, now: number): ReturnType<Store['redeliver']> {
    for (;;) {
      const [found] = await readMarked(deliveries, { _id: id, tenant }, { limit: 1 })
      if (!found) return null
      const { delivery } = found
      // An earlier try may have made it due and not scheduled its queue.
      if (delivery.redelivery && delivery.leaseUntil === null) await queues.schedule([delivery])
      const answer = await put(found, now)
      if (answer?.outcome === 'due') await queues.schedule([answer.delivery])
      if (answer) return answer
    }
  }

  async function replay(...[tenant, range, after, now, limit]: Parameters<Store['replay']>): ReturnType<Store['replay']> {
    const found = await readMarked(deliveries, selection(tenant, range, after), { sort: { createdAt: 1, _id: 1 }, limit: limit + 1 })
    const examined = found.slice(0, limit)
    const selected = examined.filter(({ delivery }) => isSelected(delivery, range))
    let count = 0
    for (let at = 0; at < selected.length; at += CONCURRENT) {
      const some = selected.slice(at, at + CONCURRENT)
      const answers = await Promise.all(some.map(async (marked) => (await put(marked, now)) ?? one(tenant, marked.delivery.id, now)))
      count += answers.filter((answer) => answer?.outcome === 'due').length
      // Also of those that an earlier try made due: it may not have scheduled their queues.
      await queues.schedule(
        answers.flatMap((answer) => (answer?.delivery.redelivery && answer.delivery.leaseUntil === null ? [answer.delivery] : [])),
      )
    }
    const last = found.length > limit ? examined.at(-1)?.delivery : undefined
    return { count, next: last ? { createdAt: last.createdAt, id: last.id } : null }
  }

  return { redeliver: one, replay }
}

function selection(tenant: string, { since, until }: ReplayRange, after: ReplayPosition | null) {
  return {
    tenant,
    createdAt: { $gte: Math.max(since, after?.createdAt ?? since), $lt: until },
    ...(after && { $or: [{ createdAt: { $gt: after.createdAt } }, { createdAt: after.createdAt, _id: { $gt: after.id } }] }),
  }
}
