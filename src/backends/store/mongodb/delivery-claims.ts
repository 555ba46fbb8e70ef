/**
 * Claims of webhook deliveries in MongoDB by concurrent processes, within the caps per receiver, tenant and queue. A leased delivery holds a
 * numbered slot of each. Unique indexes guard the slots, which are taken in the write that claims the delivery
 * and freed in the write that ends the claim.
 */
import { randomUUID } from 'node:crypto'
import type { Delivery } from '../../../domain/task.ts'
import { putNewest } from '../../../domain/bounded-map.ts'
import type { Store } from '../store.ts'
import { capOf, type DeliveryCaps } from '../task-store.ts'
import { withTimeout } from '../../../concurrency/batching.ts'
import { batchChanges } from './bulk-commands.ts'
import { KNOWN, VERB_TIMEOUT_MS, type Database } from './database.ts'
import { NO_SLOTS, readMarked, type Marked, type OwnClaims, type StoredDelivery } from './deliveries.ts'
import type { Indexes } from './indexes.ts'
import { idOf, type DueDeliveryQueue, type DeliveryQueues } from './delivery-queues.ts'
import { openSlots, type Leased, type Slots, type TakenSlots } from './delivery-slots.ts'

export const claimIndexes = {
  deliveries: [
    // The earliest of a queue
    { name: 'in_lane', key: { tenant: 1, host: 1, claimableAt: 1 }, partialFilterExpression: { claimableAt: { $gt: 0 } } },
    // Leased deliveries
    { name: 'leased', key: { leaseUntil: 1 }, partialFilterExpression: { leaseUntil: { $gt: 0 } } },
    { name: 'host_slots', key: { hostSlot: 1 }, unique: true, partialFilterExpression: { hostSlot: { $exists: true } } },
    { name: 'tenant_slots', key: { tenantSlot: 1 }, unique: true, partialFilterExpression: { tenantSlot: { $exists: true } } },
    { name: 'queue_slots', key: { queueSlot: 1 }, unique: true, partialFilterExpression: { queueSlot: { $exists: true } } },
  ],
} satisfies Indexes

type Chosen = Marked & { slots: TakenSlots }
/** A queue with its due deliveries, earliest first. */
type Candidates = { queue: DueDeliveryQueue; due: Marked[] }

/** Queues of one tenant that one pass reads. */
const MAX_QUEUES = 16
/** A pass that lost all its deliveries to other processes is repeated. This limit guards against an inconsistent store. */
const MAX_PASSES = 100
/** Claims whose `write` is remembered. */
const MAX_REMEMBERED = 10_000

export function openClaims(database: Database, queues: DeliveryQueues, claims: OwnClaims): Pick<Store, 'claimDeliveries'> {
  const deliveries = database.collection<StoredDelivery>('deliveries')
  const change = batchChanges(deliveries)

  async function claim(now: number, leaseUntil: number, caps: DeliveryCaps): Promise<Delivery[]> {
    const claimed: Delivery[] = []
    /** Ids of due queues without a delivery to claim: theirs may be in a newer format, so that they stay due. */
    const empty: string[] = []
    for (let pass = 0; pass < MAX_PASSES && claimed.length < caps.limit; pass++) {
      const slots = openSlots(await leased(now), caps)
      const room = caps.limit - claimed.length
      const full = slots.full()
      full.queues.push(...empty)
      const tenants = await queues.longestDue(now, full, { tenants: room, queues: MAX_QUEUES })
      if (tenants.length === 0) break
      const candidates = await Promise.all(
        tenants.map((due) => Promise.all(due.map((queue) => dueIn(queue, now, Math.min(room, capOf(caps, queue)))))),
      )
      const isCut =
        tenants.length === room ||
        tenants.some((due) => due.length === MAX_QUEUES) ||
        candidates.flat().some(({ due }) => due.length === room)
      empty.push(...candidates.flat().flatMap(({ queue, due }) => (due.length === 0 ? [idOf(queue)] : [])))
      const chosen = choose(candidates, slots, room)
      const taken = await Promise.allSettled(chosen.map((one) => take(one, now, leaseUntil)))
      const won = taken.flatMap((one) => (one.status === 'fulfilled' && one.value ? [one.value] : []))
      claimed.push(...won)
      // Claimed deliveries must be returned, whatever else failed: the next claim meets the failure again, and corrects a queue whose time is too early.
      const failed = taken.find((one) => one.status === 'rejected')
      if (failed && claimed.length === 0) throw failed.reason
      await Promise.all(candidates.flat().map(({ queue }) => reschedule(queue))).catch((error: unknown) => {
        if (claimed.length === 0) throw error
      })
      // Everything due was read, and what is left waits for slots.
      if (failed || (!isCut && won.length === chosen.length)) break
    }
    return claimed
  }

  /** The active leases. Expired ones lose their slots, but keep their claim: its attempt may still be recorded. */
  async function leased(now: number): Promise<Leased[]> {
    const projection = { tenant: 1, host: 1, hostSlot: 1, tenantSlot: 1, queueSlot: 1, leaseUntil: 1 }
    const all = await deliveries.find<Leased & { _id: string; leaseUntil: number }>({ leaseUntil: { $gt: 0 } }, { projection }).toArray()
    const expired = all.filter(({ leaseUntil, hostSlot }) => leaseUntil <= now && hostSlot !== undefined)
    // One by one: FerretDB runs a command in one transaction, and two that free the same slots, or one and a claim that waits for a slot, would deadlock.
    await Promise.all(expired.map(({ _id }) => deliveries.updateOne({ _id, leaseUntil: { $gt: 0, $lte: now } }, NO_SLOTS)))
    return all.filter(({ leaseUntil }) => leaseUntil > now)
  }

  async function dueIn(queue: DueDeliveryQueue, now: number, limit: number): Promise<Candidates> {
    const { tenant, host } = queue
    const isDue = { tenant, host, claimableAt: { $gt: 0, $lte: now }, ...KNOWN }
    return { queue, due: await readMarked(deliveries, isDue, { sort: { claimableAt: 1 }, limit }) }
  }

  /** Null when another process took the delivery or one of its slots first. */
  async function take({ delivery, write, slots }: Chosen, now: number, leaseUntil: number): Promise<Delivery | null> {
    const { id, nextAttemptAt } = delivery
    const next = { epoch: delivery.epoch + 1, leaseUntil }
    const mark = randomUUID()
    const claimed = { _id: id, ...next, claimableAt: Math.max(nextAttemptAt ?? 0, leaseUntil), ...slots, write: mark }
    // A process of an earlier release may have recorded or returned it without a new `write`.
    if ((await change({ next: claimed, last: write, when: { claimableAt: { $gt: 0, $lte: now } } })) === 'lost') return null
    putNewest(claims, id, { epoch: next.epoch, write: mark }, MAX_REMEMBERED)
    return { ...delivery, ...next }
  }

  /** Sets the time of a queue to that of its earliest delivery. A delivery that is added after this read changes the queue's mark, which voids the update. */
  async function reschedule(queue: DueDeliveryQueue): Promise<void> {
    const earliest = { tenant: queue.tenant, host: queue.host, claimableAt: { $gt: 0 } }
    const first = await deliveries.findOne(earliest, { projection: { claimableAt: 1 }, sort: { claimableAt: 1 } })
    await queues.move(queue, first?.claimableAt ?? null)
  }

  /** One claim at a time in this process, or after a timeout: concurrent claims of one process would only compete. */
  let last: Promise<unknown> = Promise.resolve()
  const serialized = (...args: Parameters<typeof claim>): Promise<Delivery[]> => {
    const claimed = last.then(() => claim(...args))
    last = withTimeout('store', VERB_TIMEOUT_MS, claimed).catch(() => {})
    return claimed
  }

  return { claimDeliveries: (...args) => database.run(() => serialized(...args)) }
}

/** Round-robin over the tenants, longest due first, as far as slots of the receiver, the tenant and the queue are free. */
function choose(tenants: Candidates[][], slots: Slots, limit: number): Chosen[] {
  const chosen: Chosen[] = []
  for (let round = -1; round !== chosen.length && chosen.length < limit;) {
    round = chosen.length
    const firsts = tenants.flatMap((queues) =>
      queues
        .filter(({ queue, due }) => due.length > 0 && slots.areFree(queue))
        .sort(byTime)
        .slice(0, 1),
    )
    for (const { queue, due } of firsts.sort(byTime).slice(0, limit - chosen.length)) {
      // An earlier queue of this round may have taken the last slot of the receiver.
      const first = slots.areFree(queue) ? due.shift() : undefined
      if (first) chosen.push({ ...first, slots: slots.take(queue) })
    }
  }
  return chosen
}

/** By the time at which the first delivery of the queue became due. */
function byTime(a: Candidates, b: Candidates): number {
  const at = ({ due: [first] }: Candidates) => Math.max(first?.delivery.nextAttemptAt ?? 0, first?.delivery.leaseUntil ?? 0)
  return at(a) - at(b)
}
