/**
 * How deliveries are claimed in MongoDB by several processes at once, none of which leases more than a receiver or a tenant may have. A
 * leased delivery holds a numbered slot of its receiver and one of its tenant. The slots are unique in their indexes, and are taken in the
 * write that claims the delivery and given back in the write that ends the claim: nothing can be between.
 */
import type { Delivery } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import { withTimeout } from '../../../concurrency/batching.ts'
import { isDuplicate, LONGEST_MS, nounOf, type Database } from './database.ts'
import { DELIVERY, NO_SLOTS, type StoredDelivery } from './deliveries.ts'
import type { Indexes } from './indexes.ts'
import type { DueDeliveryQueue, DeliveryQueues } from './delivery-queues.ts'
import { openSlots, type Leased, type Slots } from './delivery-slots.ts'

export const claimIndexes = {
  deliveries: [
    // The earliest of a lane
    { name: 'in_lane', key: { tenant: 1, host: 1, claimableAt: 1 }, partialFilterExpression: { claimableAt: { $gt: 0 } } },
    // Those that are leased
    { name: 'leased', key: { leaseUntil: 1 }, partialFilterExpression: { leaseUntil: { $gt: 0 } } },
    { name: 'host_slots', key: { hostSlot: 1 }, unique: true, partialFilterExpression: { hostSlot: { $exists: true } } },
    { name: 'tenant_slots', key: { tenantSlot: 1 }, unique: true, partialFilterExpression: { tenantSlot: { $exists: true } } },
  ],
} satisfies Indexes

type Caps = Parameters<Store['claimDeliveries']>[2]
type Chosen = { delivery: Delivery; hostSlot: string; tenantSlot: string }
/** A lane with what is due in it, earliest first. */
type Filled = { lane: DueDeliveryQueue; due: Delivery[] }

/** DeliveryQueues of one tenant that one pass looks into. */
const MOST_LANES = 16
/** A pass in which another process took all that this one had chosen is followed by another; as many as that is a store at odds. */
const MOST_PASSES = 100

export function openClaims(database: Database, lanes: DeliveryQueues): Pick<Store, 'claimDeliveries'> {
  const deliveries = database.collection<StoredDelivery>('deliveries')

  async function claim(now: number, leaseUntil: number, caps: Caps): Promise<Delivery[]> {
    const claimed: Delivery[] = []
    for (let pass = 0; pass < MOST_PASSES && claimed.length < caps.limit; pass++) {
      const slots = openSlots(await leased(now), caps)
      const room = caps.limit - claimed.length
      const tenants = await lanes.longestDue(now, slots.full(), { tenants: room, lanes: MOST_LANES })
      if (tenants.length === 0) break
      const filled = await Promise.all(tenants.map((due) => Promise.all(due.map((lane) => fill(lane, now, Math.min(room, caps.perHost))))))
      const taken = await Promise.allSettled(choose(filled, slots, room).map((chosen) => take(chosen, leaseUntil)))
      const got = taken.flatMap((one) => (one.status === 'fulfilled' && one.value ? [one.value] : []))
      claimed.push(...got)
      // What was claimed must be answered: a failure now is found by the next look. So is a lane that stands too early.
      const failed = taken.find((one) => one.status === 'rejected')
      if (failed && claimed.length === 0) throw failed.reason
      await Promise.all(filled.flat().map(({ lane }) => follow(lane))).catch((error: unknown) => {
        if (claimed.length === 0) throw error
      })
      if (failed) break
    }
    return claimed
  }

  /** The leases that are running. Those that ended give their slots back, but not their claim: its attempt may still be written down. */
  async function leased(now: number): Promise<Leased[]> {
    const projection = { tenant: 1, host: 1, hostSlot: 1, tenantSlot: 1, leaseUntil: 1 }
    const all = await deliveries.find<Leased & { _id: string; leaseUntil: number }>({ leaseUntil: { $gt: 0 } }, { projection }).toArray()
    const over = all.filter(({ leaseUntil, hostSlot }) => leaseUntil <= now && hostSlot !== undefined)
    // One by one: FerretDB does a command in one transaction, and two that freed the same ones, or one and a claim that waits for a slot, would wait for each other.
    await Promise.all(over.map(({ _id }) => deliveries.updateOne({ _id, leaseUntil: { $gt: 0, $lte: now } }, NO_SLOTS)))
    return all.filter(({ leaseUntil }) => leaseUntil > now)
  }

  async function fill(lane: DueDeliveryQueue, now: number, limit: number): Promise<Filled> {
    const { tenant, host } = lane
    const found = deliveries.find({ tenant, host, claimableAt: { $gt: 0, $lte: now } }, { projection: DELIVERY })
    return { lane, due: (await found.sort({ claimableAt: 1 }).limit(limit).toArray()).map(nounOf<Delivery>) }
  }

  /** Null when it, or one of its slots, was another's first. */
  async function take({ delivery, ...slots }: Chosen, leaseUntil: number): Promise<Delivery | null> {
    const { id, epoch, nextAttemptAt } = delivery
    const next = { epoch: epoch + 1, leaseUntil }
    const claimableAt = Math.max(nextAttemptAt ?? 0, leaseUntil)
    const unclaimed = { _id: id, epoch, nextAttemptAt, leaseUntil: delivery.leaseUntil, state: 'pending' as const }
    try {
      const claimed = await deliveries.updateOne(unclaimed, { $set: { ...next, claimableAt, ...slots } })
      return claimed.matchedCount === 1 ? { ...delivery, ...next } : null
    } catch (error) {
      if (isDuplicate(error)) return null
      throw error
    }
  }

  /** Moves a lane to its earliest delivery. One that comes after this look changes the lane's mark, and the move is void. */
  async function follow(lane: DueDeliveryQueue): Promise<void> {
    const earliest = { tenant: lane.tenant, host: lane.host, claimableAt: { $gt: 0 } }
    const first = await deliveries.findOne(earliest, { projection: { claimableAt: 1 }, sort: { claimableAt: 1 } })
    await lanes.move(lane, first?.claimableAt ?? null)
  }

  /** One claim at a time in this process, unless it never ends: those of one store would only take from each other. */
  let last: Promise<unknown> = Promise.resolve()
  const inTurn = (...asked: Parameters<typeof claim>): Promise<Delivery[]> => {
    const claimed = last.then(() => claim(...asked))
    last = withTimeout('store', LONGEST_MS, claimed).catch(() => {})
    return claimed
  }

  return { claimDeliveries: (...asked) => database.ask(() => inTurn(...asked)) }
}

/** Goes round the tenants, longest due first, with what is free of each receiver's and tenant's slots. */
function choose(tenants: Filled[][], slots: Slots, limit: number): Chosen[] {
  const chosen: Chosen[] = []
  for (let round = -1; round !== chosen.length && chosen.length < limit; ) {
    round = chosen.length
    const firsts = tenants.flatMap((lanes) => lanes.filter(({ lane, due }) => due.length > 0 && slots.areFree(lane)).sort(byTime).slice(0, 1))
    for (const { lane, due } of firsts.sort(byTime).slice(0, limit - chosen.length)) {
      // A lane before this one may have taken the last slot of its receiver.
      const delivery = slots.areFree(lane) ? due.shift() : undefined
      if (delivery) chosen.push({ delivery, ...slots.take(lane) })
    }
  }
  return chosen
}

/** By the time since when the first of the lane is due. */
function byTime(a: Filled, b: Filled): number {
  const at = ({ due: [first] }: Filled) => Math.max(first?.nextAttemptAt ?? 0, first?.leaseUntil ?? 0)
  return at(a) - at(b)
}
