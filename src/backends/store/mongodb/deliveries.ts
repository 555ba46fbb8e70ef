/**
 * Deliveries in MongoDB. How they are written; `claims.ts` leases them. What SQLite does in one transaction is put in an order here, whose
 * every gap is closed by a repetition or by the end of a lease.
 */
import type { Delivery } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import { batchInserts } from './bulk-commands.ts'
import { nounOf, stored, type Database, type Stored } from './database.ts'
import type { Indexes } from './indexes.ts'
import type { DeliveryQueues } from './delivery-queues.ts'

export const deliveryIndexes = {
  deliveries: [
    // deliveries, removal with the task
    { name: 'of_task', key: { taskId: 1, _id: 1 } },
  ],
} satisfies Indexes

/** Follows from the delivery: while it is pending, when it is due or when its lease ends. */
type Derived = { claimableAt: number | null }
/** While it is leased, the numbers of its slots among those of its receiver and of its tenant; see `claims.ts`. */
type Slots = { hostSlot?: string; tenantSlot?: string }
export type StoredDelivery = Stored<Delivery> & Derived & Slots

/** What is left out when one is read. */
export const DELIVERY = { claimableAt: 0, hostSlot: 0, tenantSlot: 0 } as const
export const NO_SLOTS = { $unset: { hostSlot: '', tenantSlot: '' } } as const

/** What tasks need of their deliveries. */
export type Deliveries = {
  /** Those that are there stay as they are. Their lanes are told in any case, since an earlier try may have ended before. */
  add(deliveries: Delivery[]): Promise<void>
  remove(taskIds: string[]): Promise<void>
}

type Verbs = 'recordAttempt' | 'returnDelivery' | 'deliveries'

export function openDeliveries(database: Database, lanes: DeliveryQueues): { deliveries: Deliveries; verbs: Pick<Store, Verbs> } {
  const collection = database.collection<StoredDelivery>('deliveries')
  const insert = batchInserts(collection, ({ _id }) => _id, ({ body }) => 1000 + body.length)

  const recordAttempt: Store['recordAttempt'] = async (id, epoch, attempt, next, release) => {
    const delivery = await collection.findOne({ _id: id })
    if (delivery?.epoch !== epoch) return 'lost'
    // No claim has it any more: this one wrote the attempt down before, or gave the delivery back.
    if (delivery.leaseUntil === null) return delivery.attempts.some(({ number }) => number === attempt.number) ? 'recorded' : 'lost'
    // Released first: the attempt has ended, whoever gets to write it down. The other way round, a crash between would release nothing.
    if (release) await releaseWaiting(release.id, release.at)
    const claimableAt = next.state === 'pending' ? next.nextAttemptAt : null
    const recorded = await collection.updateOne(
      { _id: id, epoch, leaseUntil: { $ne: null } },
      { $set: { ...next, leaseUntil: null, claimableAt }, $push: { attempts: attempt }, ...NO_SLOTS },
    )
    if (recorded.matchedCount === 0) return recordAttempt(id, epoch, attempt, next, null)
    if (claimableAt !== null) await lanes.tell([{ ...delivery, nextAttemptAt: claimableAt }])
    return 'recorded'
  }

  async function releaseWaiting(id: string, at: number): Promise<void> {
    const due = { state: 'pending', nextAttemptAt: at, claimableAt: at } as const
    const released = await collection.findOneAndUpdate({ _id: id, state: 'waiting' }, { $set: due }, { returnDocument: 'after' })
    // An earlier try may have released it and not told its lane.
    const pending = released ?? (await collection.findOne({ _id: id, state: 'pending', attempts: { $size: 0 } }))
    if (pending) await lanes.tell([pending])
  }

  async function returnDelivery(id: string, epoch: number, at: number): Promise<void> {
    const back = { $set: { nextAttemptAt: at, claimableAt: at, leaseUntil: null }, ...NO_SLOTS }
    const returned = await collection.findOneAndUpdate({ _id: id, epoch, leaseUntil: { $ne: null } }, back, { returnDocument: 'after' })
    if (returned) await lanes.tell([returned])
  }

  return {
    deliveries: {
      add: async (made) => {
        await Promise.all(made.map((delivery) => insert({ ...stored(delivery), claimableAt: claimableAt(delivery) })))
        await lanes.tell(made)
      },
      remove: async (taskIds) => void (await collection.deleteMany({ taskId: { $in: taskIds } })),
    },
    verbs: {
      recordAttempt: (...attempt) => database.ask(() => recordAttempt(...attempt)),
      returnDelivery: (...returned) => database.ask(() => returnDelivery(...returned)),
      deliveries: (taskId) =>
        database.ask(async () => (await collection.find({ taskId }, { projection: DELIVERY }).sort({ _id: 1 }).toArray()).map(nounOf<Delivery>)),
    },
  }
}

function claimableAt({ state, nextAttemptAt, leaseUntil }: Delivery): number | null {
  return state === 'pending' && nextAttemptAt !== null ? Math.max(nextAttemptAt, leaseUntil ?? 0) : null
}
