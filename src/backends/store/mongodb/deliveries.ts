/**
 * Webhook deliveries in MongoDB: writes. `delivery-claims.ts` leases them. What SQLite does in one transaction is several writes here,
 * ordered so that a repetition or the end of a lease completes whatever a crash left undone.
 */
import { randomUUID } from 'node:crypto'
import type { Collection, Filter, Sort } from 'mongodb'
import type { Delivery, DeliveryAttempt } from '../../../domain/task.ts'
import { WEBHOOK_EVENTS } from '../../../domain/webhooks.ts'
import type { Store } from '../store.ts'
import { batchChanges, batchInserts, type Written } from './bulk-commands.ts'
import { fromStored, toStored, type Database, type Stored } from './database.ts'
import type { DeliveryQueues } from './delivery-queues.ts'
import type { TakenSlots } from './delivery-slots.ts'

/** Derived from the delivery: while it is pending, when it is due or when its lease ends. */
type Derived = { claimableAt: number | null }
/** While it is leased, it has its slots; see `delivery-claims.ts`. `write` marks the last of its batched updates. */
export type StoredDelivery = Stored<Delivery> & Derived & Partial<TakenSlots> & Written

/** Projections without derived members and slots, and also without the mark. */
export const DELIVERY_AND_WRITE = { claimableAt: 0, hostSlot: 0, tenantSlot: 0, queueSlot: 0 } as const
export const DELIVERY = { ...DELIVERY_AND_WRITE, write: 0 } as const
export const NO_SLOTS = { $unset: { hostSlot: '', tenantSlot: '', queueSlot: '' } } as const

/** A delivery with the `write` that it was read with. */
export type Marked = { delivery: Delivery; write: string | null }

/** Reads deliveries that may be changed by `batchChanges`. */
export async function readMarked(
  collection: Collection<StoredDelivery>,
  filter: Filter<StoredDelivery>,
  options: { sort?: Sort; limit: number },
): Promise<Marked[]> {
  const found = await collection.find(filter, { projection: DELIVERY_AND_WRITE, ...options }).toArray()
  return found.map(marked)
}

/** Of what was read with `DELIVERY_AND_WRITE`. */
export function marked({ write, ...stored }: Stored<Delivery> & Written): Marked {
  return { delivery: fromStored<Delivery>(stored), write: write ?? null }
}

/** The claims of this process, by the ids of their deliveries. */
export type OwnClaims = Map<string, { epoch: number; write: string }>

/** What tasks use of deliveries. */
export type Deliveries = {
  /**
   * Those that wait for another one are stored first: once it is attempted, nothing would release them. Existing ones stay unchanged, but
   * their queues are scheduled again: an earlier attempt may have ended before it did.
   */
  add(deliveries: Delivery[]): Promise<void>
  remove(taskIds: string[]): Promise<void>
}

type Verbs = 'recordAttempt' | 'returnDelivery' | 'deliveries'

export function openDeliveries(
  database: Database,
  queues: DeliveryQueues,
  claims: OwnClaims,
): { deliveries: Deliveries; verbs: Pick<Store, Verbs> } {
  const collection = database.collection<StoredDelivery>('deliveries')
  const insert = batchInserts(
    collection,
    ({ _id }) => _id,
    ({ body }) => 1000 + body.length,
  )

  // Slots are only freed, and of documents that no other command of claims writes: no two of these wait for each other.
  // Each recorded attempt frees slots, for which other deliveries wait.
  const record = batchChanges(collection, undefined, false)

  /** The last attempt of most deliveries needs no read, and shares its statement with others. */
  const recordAttempt: Store['recordAttempt'] = async (id, epoch, attempt, next, release) => {
    const isLast = next.state !== 'pending' || next.nextAttemptAt === null
    const claim = claims.get(id)
    claims.delete(id)
    if (release === null && isLast && claim?.epoch === epoch) {
      const { $set, $unset, $push } = recording(epoch, attempt, next).update
      const recorded = await record({
        next: { _id: id, ...$set },
        last: claim.write,
        when: { leaseUntil: { $ne: null } },
        removed: Object.keys($unset),
        appended: $push,
      })
      if (recorded === 'swapped') return 'recorded'
    }
    return recordAfterRead(id, epoch, attempt, next, release)
  }

  const recordAfterRead: Store['recordAttempt'] = async (id, epoch, attempt, next, release) => {
    const delivery = await collection.findOne({ _id: id })
    if (delivery?.epoch !== epoch) return 'lost'
    // No longer claimed: this claim recorded the attempt earlier, or returned the delivery.
    if (delivery.leaseUntil === null) return delivery.attempts.some(({ number }) => number === attempt.number) ? 'recorded' : 'lost'
    // Released first: in the other order, a crash in between would never release it.
    if (release) await releaseWaiting(release.id, release.at)
    const { filter, update } = recording(epoch, attempt, next)
    if ((await collection.updateOne({ _id: id, ...filter }, update)).matchedCount === 0)
      return recordAfterRead(id, epoch, attempt, next, null)
    const { claimableAt } = update.$set
    if (claimableAt !== null) await queues.schedule([{ ...delivery, nextAttemptAt: claimableAt }])
    return 'recorded'
  }

  async function releaseWaiting(id: string, at: number): Promise<void> {
    const due = { state: 'pending', nextAttemptAt: at, claimableAt: at, write: randomUUID() } as const
    const released = await collection.findOneAndUpdate({ _id: id, state: 'waiting' }, { $set: due }, { returnDocument: 'after' })
    // An earlier attempt may have released it without scheduling its queue.
    const pending = released ?? (await collection.findOne({ _id: id, state: 'pending', attempts: { $size: 0 } }))
    if (pending) await queues.schedule([pending])
  }

  async function returnDelivery(id: string, epoch: number, at: number): Promise<void> {
    claims.delete(id)
    const update = { $set: { nextAttemptAt: at, claimableAt: at, leaseUntil: null, write: randomUUID() }, ...NO_SLOTS }
    const returned = await collection.findOneAndUpdate({ _id: id, epoch, leaseUntil: { $ne: null } }, update, { returnDocument: 'after' })
    if (returned) await queues.schedule([returned])
  }

  async function addAll(made: Delivery[]): Promise<void> {
    await Promise.all(made.map((delivery) => insert({ ...toStored(delivery), claimableAt: claimableAt(delivery), write: randomUUID() })))
  }

  return {
    deliveries: {
      add: async (made) => {
        const isWaiting = ({ state }: Delivery) => state === 'waiting'
        await addAll(made.filter(isWaiting))
        await addAll(made.filter((delivery) => !isWaiting(delivery)))
        await queues.schedule(made)
      },
      remove: async (taskIds) => {
        const ids = taskIds.flatMap((id) => WEBHOOK_EVENTS.map((event) => `${id}.${event}`))
        await collection.deleteMany({ _id: { $in: ids } })
      },
    },
    verbs: {
      recordAttempt,
      returnDelivery,
      deliveries: async (taskId) => {
        const ofTask = collection.find({ _id: { $gt: `${taskId}.`, $lt: `${taskId}/` } }, { projection: DELIVERY })
        return (await ofTask.sort({ _id: 1 }).toArray()).map(fromStored<Delivery>)
      },
    },
  }
}

/** Ends the claim of `epoch` by its attempt. */
function recording(epoch: number, attempt: DeliveryAttempt, next: Pick<Delivery, 'state' | 'nextAttemptAt'>) {
  const filter = { epoch, leaseUntil: { $ne: null } } as const
  return {
    filter,
    update: {
      $set: { ...next, leaseUntil: null, claimableAt: claimableAt({ ...next, leaseUntil: null }), write: randomUUID() },
      $push: { attempts: attempt },
      $unset: { ...NO_SLOTS.$unset, redelivery: '' },
    } as const,
  }
}

function claimableAt({ state, nextAttemptAt, leaseUntil }: Pick<Delivery, 'state' | 'nextAttemptAt' | 'leaseUntil'>): number | null {
  return state === 'pending' && nextAttemptAt !== null ? Math.max(nextAttemptAt, leaseUntil ?? 0) : null
}
