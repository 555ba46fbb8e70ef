/**
 * Redelivery and replay in MongoDB: a compare-and-set of single deliveries, so that an attempt under way or a claim excludes it. A process
 * that ends before it scheduled the queue has answered nobody; the repeated request schedules it.
 */
import { redeliver, type Redelivery } from '../../../domain/redelivery.ts'
import type { Delivery, ReplayPosition, ReplayRange } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import { batchUpdates } from './bulk-commands.ts'
import { fromStored, type Database } from './database.ts'
import { DELIVERY, type StoredDelivery } from './deliveries.ts'
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
  const update = batchUpdates(deliveries)

  /** Null when it changed since it was read. */
  async function put(before: Delivery, now: number): Promise<{ outcome: Redelivery['outcome']; delivery: Delivery } | null> {
    const next = redeliver(before, now)
    if (next.outcome !== 'due') return { outcome: next.outcome, delivery: before }
    const { delivery } = next
    const { id, epoch, state, nextAttemptAt } = before
    const unchanged = { epoch, state, nextAttemptAt, leaseUntil: null, attempts: { $size: before.attempts.length } }
    const due = { state: delivery.state, nextAttemptAt: delivery.nextAttemptAt, redelivery: delivery.redelivery, claimableAt: now }
    return (await update({ id, filter: unchanged, update: { $set: due } })) === 'lost' ? null : next
  }

  async function one(tenant: string, id: string, now: number): ReturnType<Store['redeliver']> {
    for (;;) {
      const found = await deliveries.findOne({ _id: id, tenant }, { projection: DELIVERY })
      if (!found) return null
      const delivery = fromStored<Delivery>(found)
      // An earlier try may have made it due and not scheduled its queue.
      if (delivery.redelivery && delivery.leaseUntil === null) await queues.schedule([delivery])
      const answer = await put(delivery, now)
      if (answer?.outcome === 'due') await queues.schedule([answer.delivery])
      if (answer) return answer
    }
  }

  async function replay(
    tenant: string,
    range: ReplayRange,
    after: ReplayPosition | null,
    now: number,
    limit: number,
  ): ReturnType<Store['replay']> {
    const found = await deliveries
      .find(selection(tenant, range, after), { projection: DELIVERY })
      .sort({ createdAt: 1, _id: 1 })
      .limit(limit + 1)
      .toArray()
    const examined = found.slice(0, limit).map(fromStored<Delivery>)
    let count = 0
    for (let at = 0; at < examined.length; at += CONCURRENT) {
      const some = examined.slice(at, at + CONCURRENT)
      const answers = await Promise.all(some.map(async (delivery) => (await put(delivery, now)) ?? one(tenant, delivery.id, now)))
      count += answers.filter((answer) => answer?.outcome === 'due').length
      // Also of those that an earlier try made due: it may not have scheduled their queues.
      await queues.schedule(
        answers.flatMap((answer) => (answer?.delivery.redelivery && answer.delivery.leaseUntil === null ? [answer.delivery] : [])),
      )
    }
    const last = found.length > limit ? examined.at(-1) : undefined
    return { count, next: last ? { createdAt: last.createdAt, id: last.id } : null }
  }

  return {
    redeliver: (...values) => database.run(() => one(...values)),
    replay: (...values) => database.run(() => replay(...values)),
  }
}

function selection(tenant: string, { since, until, event, states }: ReplayRange, after: ReplayPosition | null) {
  return {
    tenant,
    createdAt: { $gte: Math.max(since, after?.createdAt ?? since), $lt: until },
    ...(after && { $or: [{ createdAt: { $gt: after.createdAt } }, { createdAt: after.createdAt, _id: { $gt: after.id } }] }),
    ...(event && { event }),
    ...(states && { state: { $in: states } }),
  }
}
