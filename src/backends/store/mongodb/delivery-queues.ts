/**
 * Delivery queues in MongoDB, one per tenant and receiver, each with the time at which its earliest delivery is due. A claim reads only due
 * queues and skips full receivers and tenants, whatever their backlog. Queues are hints, written after the deliveries: the time may be too
 * early, which a claim corrects, but is never too late for longer than a lease. The collection is named `lanes`.
 */
import { randomUUID } from 'node:crypto'
import { createBatcher, type BatchOutcome } from '../../../concurrency/batching.ts'
import type { Delivery } from '../../../domain/task.ts'
import { sortedBy, writeAll } from './bulk-commands.ts'
import { add, type Database } from './database.ts'
import type { Slots } from './delivery-slots.ts'
import type { Indexes } from './indexes.ts'

export const deliveryQueueIndexes = {
  lanes: [
    // due
    { name: 'due', key: { at: 1, host: 1, tenant: 1 } },
  ],
} satisfies Indexes

export type DeliveryQueue = { tenant: string; host: string }

/** `mark` is a new value after every change of the queue. */
export type DueDeliveryQueue = DeliveryQueue & { at: number; mark: string }

/** The id of a queue. */
export function idOf({ tenant, host }: DeliveryQueue): string {
  return JSON.stringify([tenant, host])
}

/** Queues that one process writes at once. */
const MAX_WRITES = 32

export type DeliveryQueues = {
  /** Schedules the queues of deliveries that were just written: the time of each is that of its earliest delivery afterwards, or earlier. */
  schedule(deliveries: Pick<Delivery, 'tenant' | 'host' | 'nextAttemptAt'>[]): Promise<void>
  /**
   * The tenants that are due for the longest time at `now`, each with its queues that are due for the longest time; without full receivers,
   * tenants and queues. `max`: the number of tenants, and of queues per tenant.
   */
  longestDue(now: number, full: ReturnType<Slots['full']>, max: { tenants: number; queues: number }): Promise<DueDeliveryQueue[][]>
  /** Sets the time of each queue to `at`, or deletes it when that is null, unless the queue changed since it was read. */
  move(queues: { queue: DueDeliveryQueue; at: number | null }[]): Promise<void>
}

export function openDeliveryQueues(database: Database): DeliveryQueues {
  const queues = database.collection<DueDeliveryQueue & { _id: string }>('lanes')

  async function scheduleAt({ tenant, host }: DeliveryQueue, at: number): Promise<void> {
    const [_id, mark] = [idOf({ tenant, host }), randomUUID()]
    // Repeated when another process inserts the same queue first, or deletes it in between.
    for (;;) {
      if ((await queues.updateOne({ _id }, { $min: { at }, $set: { mark } })).matchedCount === 1) return
      if ((await add(queues, { _id, tenant, host, at, mark })) === 'added') return
    }
  }

  /** The ends of many tasks of one tenant would write its queue one after the other. */
  const scheduled = createBatcher<DeliveryQueue & { at: number }, void>({
    backend: 'store',
    async send(asked) {
      const earliest = new Map(sortedBy(asked, ({ at }) => -at).map((one) => [idOf(one), one]))
      const updates = sortedBy([...earliest], ([_id]) => _id).map(([_id, { at }]) => ({
        updateOne: { filter: { _id }, update: { $min: { at }, $set: { mark: randomUUID() } } },
      }))
      const written = updates.length > 1 ? await writeAll(queues, updates).catch(() => null) : null
      if (written?.matched === updates.length) return asked.map(() => ({ answer: undefined }))
      // Some are missing, or failed. The others may be scheduled again.
      const each = [...earliest].map(async ([id, queue]) => [id, await outcomeOf(scheduleAt(queue, queue.at))] as const)
      const outcomes = new Map(await Promise.all(each))
      return asked.map((one) => outcomes.get(idOf(one)) ?? { answer: undefined })
    },
    idOf,
    shares: true,
    most: MAX_WRITES,
  })

  return {
    async schedule(deliveries) {
      await Promise.all(
        deliveries.map(({ tenant, host, nextAttemptAt }) =>
          nextAttemptAt === null ? null : scheduled({ tenant, host, at: nextAttemptAt }),
        ),
      )
    },
    async longestDue(now, full, max) {
      const found = await queues
        .aggregate<{ queues: DueDeliveryQueue[] }>([
          { $match: { at: { $lte: now }, tenant: { $nin: full.tenants }, host: { $nin: full.hosts }, _id: { $nin: full.queues } } },
          { $sort: { at: 1, host: 1 } },
          {
            $group: {
              _id: '$tenant',
              at: { $first: '$at' },
              queues: { $push: { tenant: '$tenant', host: '$host', at: '$at', mark: '$mark' } },
            },
          },
          { $sort: { at: 1, _id: 1 } },
          { $limit: max.tenants },
          { $project: { _id: 0, queues: { $slice: ['$queues', max.queues] } } },
        ])
        .toArray()
      return found.map((tenant) => tenant.queues)
    },
    async move(moved) {
      const writes = sortedBy(moved, ({ queue }) => idOf(queue)).map(({ queue, at }) => {
        const filter = { _id: idOf(queue), mark: queue.mark }
        return at === null ? { deleteOne: { filter } } : { updateOne: { filter, update: { $set: { at, mark: randomUUID() } } } }
      })
      for (let n = 0; n < writes.length; n += MAX_WRITES) await queues.bulkWrite(writes.slice(n, n + MAX_WRITES), { ordered: false })
    },
  }
}

function outcomeOf(work: Promise<void>): Promise<BatchOutcome<void>> {
  return work.then(
    (answer) => ({ answer }),
    (failure: unknown) => ({ failure }),
  )
}
