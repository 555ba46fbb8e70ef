/**
 * DeliveryQueues in MongoDB: what one tenant sends to one receiver. A lane stands at a time that is never later than that of its earliest delivery
 * for longer than a lease: a claim looks into the lanes that are due, and passes over a full receiver or tenant however much is due there.
 * DeliveryQueues are hints. They are moved after the deliveries, in writes of their own, and each look puts right those that it finds too early.
 */
import { randomUUID } from 'node:crypto'
import type { Delivery } from '../../../domain/task.ts'
import { add, type Database } from './database.ts'
import type { Indexes } from './indexes.ts'

export const laneIndexes = {
  lanes: [
    // due
    { name: 'due', key: { at: 1, host: 1, tenant: 1 } },
  ],
} satisfies Indexes

export type DeliveryQueue = { tenant: string; host: string }

/** `mark` differs after every change of the lane. */
export type DueDeliveryQueue = DeliveryQueue & { at: number; mark: string }
type StoredLane = DueDeliveryQueue & { _id: string }

export type DeliveryQueues = {
  /** Tells lanes of deliveries that were just written: each stands at its earliest then, or before. */
  tell(deliveries: Pick<Delivery, 'tenant' | 'host' | 'nextAttemptAt'>[]): Promise<void>
  /**
   * The tenants that have waited longest at `now`, each with those lanes of it that have waited longest; without those that are full.
   * `narrow` is how many tenants and how many lanes of each.
   */
  longestDue(now: number, full: { hosts: string[]; tenants: string[] }, narrow: { tenants: number; lanes: number }): Promise<DueDeliveryQueue[][]>
  /** Moves a lane to `at`, or away when that is null, unless it changed since it was read. */
  move(lane: DueDeliveryQueue, at: number | null): Promise<void>
}

export function openDeliveryQueues(database: Database): DeliveryQueues {
  const lanes = database.collection<StoredLane>('lanes')

  async function stand({ tenant, host }: DeliveryQueue, at: number): Promise<void> {
    const [_id, mark] = [JSON.stringify([tenant, host]), randomUUID()]
    // Two who tell a new lane at once: the second finds the first's. One who moves it away meanwhile: it is new again.
    for (;;) {
      if ((await lanes.updateOne({ _id }, { $min: { at }, $set: { mark } })).matchedCount === 1) return
      if ((await add(lanes, { _id, tenant, host, at, mark })) === 'added') return
    }
  }

  return {
    async tell(deliveries) {
      await Promise.all(deliveries.map(({ nextAttemptAt, ...lane }) => (nextAttemptAt === null ? null : stand(lane, nextAttemptAt))))
    },
    async longestDue(now, full, narrow) {
      const found = await lanes
        .aggregate<{ lanes: DueDeliveryQueue[] }>([
          { $match: { at: { $lte: now }, tenant: { $nin: full.tenants }, host: { $nin: full.hosts } } },
          { $sort: { at: 1, host: 1 } },
          { $group: { _id: '$tenant', at: { $first: '$at' }, lanes: { $push: { tenant: '$tenant', host: '$host', at: '$at', mark: '$mark' } } } },
          { $sort: { at: 1, _id: 1 } },
          { $limit: narrow.tenants },
          { $project: { _id: 0, lanes: { $slice: ['$lanes', narrow.lanes] } } },
        ])
        .toArray()
      return found.map((tenant) => tenant.lanes)
    },
    async move({ tenant, host, mark }, at) {
      const unchanged = { _id: JSON.stringify([tenant, host]), mark }
      if (at === null) await lanes.deleteOne(unchanged)
      else await lanes.updateOne(unchanged, { $set: { at, mark: randomUUID() } })
    },
  }
}
