/**
 * Claims of webhook deliveries in MongoDB by concurrent processes, within the caps per receiver, tenant and queue. A leased delivery holds a
 * numbered slot of each. Unique indexes guard the slots, which are taken in the write that claims the delivery
 * and freed in the write that ends the claim.
 */
import { randomUUID } from 'node:crypto'
import type { Delivery } from '../../../domain/task.ts'
import { putNewest } from '../../../domain/long-lived-maps.ts'
import type { Store } from '../store.ts'
import { capOf, type DeliveryCaps } from '../task-store.ts'
import { withTimeout } from '../../../concurrency/batching.ts'
import { batchChanges, sortedBy, type Written } from './bulk-commands.ts'
import { isKnown, KNOWN, VERB_TIMEOUT_MS, type Database, type Stored } from './database.ts'
import { DELIVERY_AND_WRITE, marked, NO_SLOTS, readMarked, type Marked, type OwnClaims, type StoredDelivery } from './deliveries.ts'
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
/**
 * A queue with due deliveries of it, earliest first. `later`: the time of the queue after all of them were claimed.
 * `isExact`: they were read after the queue, and are its earliest.
 */
type Candidates = { queue: DueDeliveryQueue; due: Marked[]; later: number | null; isExact: boolean }

/** Queues of one tenant that one pass reads. */
const MAX_QUEUES = 16
/** Queues that one command reads. */
const MAX_READS = 32
/** Deliveries that a pass reads beyond those that it may claim, of all queues together. */
const MAX_AHEAD = 256
/** Queues whose deliveries are remembered for later passes. */
const MAX_QUEUES_AHEAD = 32
/** A pass that lost all its deliveries to other processes is repeated. This limit guards against an inconsistent store. */
const MAX_PASSES = 100
/** Claims whose `write` is remembered. */
const MAX_REMEMBERED = 10_000

export function openClaims(database: Database, queues: DeliveryQueues, claims: OwnClaims): Pick<Store, 'claimDeliveries'> {
  const deliveries = database.collection<StoredDelivery>('deliveries')
  const change = batchChanges(deliveries)
  /**
   * Due deliveries that were read and not claimed, by the ids of queues whose time was `at` then. A server that sorts a whole
   * backlog for each read does it less often.
   * More are read of a queue only where a pass has left some and no other process works on it.
   */
  const ahead = new Map<string, { at: number; due: Marked[] }>()

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
      const candidates = await candidatesOf(tenants.flat(), now, leaseUntil, (queue) => Math.min(room, capOf(caps, queue)))
      const isCut =
        tenants.length === room ||
        tenants.some((due) => due.length === MAX_QUEUES) ||
        candidates.some(({ queue, due }) => due.length >= room && capOf(caps, queue) >= room)
      empty.push(...candidates.flatMap(({ queue, due }) => (due.length === 0 ? [idOf(queue)] : [])))
      const chosen = choose([...Map.groupBy(candidates, ({ queue }) => queue.tenant).values()], slots, room)
      const taken = await Promise.allSettled(chosen.map((one) => take(one, now, leaseUntil)))
      const won = taken.flatMap((one) => (one.status === 'fulfilled' && one.value ? [one.value] : []))
      claimed.push(...won)
      // Claimed deliveries must be returned, whatever else failed: the next claim meets the failure again, and corrects a queue whose time is too early.
      const failed = taken.find((one) => one.status === 'rejected')
      if (failed && claimed.length === 0) throw failed.reason
      const lost = new Set(chosen.flatMap(({ delivery }) => (won.some(({ id }) => id === delivery.id) ? [] : [idOf(delivery)])))
      await queues.move(candidates.flatMap((one) => settled(one, lost.has(idOf(one.queue))))).catch((error: unknown) => {
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

  /** `most`: how many of a queue may be claimed. */
  async function candidatesOf(
    due: DueDeliveryQueue[],
    now: number,
    leaseUntil: number,
    most: (queue: DueDeliveryQueue) => number,
  ): Promise<Candidates[]> {
    const kept = due.flatMap((queue) => {
      const one = ahead.get(idOf(queue))
      ahead.delete(idOf(queue))
      return one ? [{ queue, ...one }] : []
    })
    const valid = kept.filter((one) => one.at === one.queue.at && one.due.length >= most(one.queue))
    const known = valid.map(({ queue, due }): Candidates => ({ queue, due, later: queue.at, isExact: false }))
    const unread = due.filter((queue) => !known.some((one) => one.queue === queue))
    // Another process would have moved the time on. It is earlier where a delivery was added meanwhile.
    const isOurs = (queue: DueDeliveryQueue) => kept.some((one) => one.queue === queue && queue.at <= one.at)
    const limitOf = (queue: DueDeliveryQueue) => most(queue) + (isOurs(queue) ? Math.max(1, Math.floor(MAX_AHEAD / due.length)) : 1)
    const parts = Array.from({ length: Math.ceil(unread.length / MAX_READS) }, (_, n) => unread.slice(n * MAX_READS, (n + 1) * MAX_READS))
    const read = parts.map((part) =>
      readQueues(
        part.map((queue) => ({ queue, limit: limitOf(queue) })),
        now,
        leaseUntil,
      ),
    )
    return [...known, ...(await Promise.all(read)).flat()]
  }

  /** The earliest deliveries of each queue, in one command. */
  async function readQueues(asked: { queue: DueDeliveryQueue; limit: number }[], now: number, leaseUntil: number): Promise<Candidates[]> {
    const [first = [], ...others] = asked.map(({ queue: { tenant, host }, limit }) => [
      { $match: { tenant, host, claimableAt: { $gt: 0 } } },
      { $sort: { claimableAt: 1 } },
      { $limit: limit },
      { $project: DELIVERY_AND_WRITE },
    ])
    const stages = [...first, ...others.map((pipeline) => ({ $unionWith: { coll: deliveries.collectionName, pipeline } }))]
    const found = await deliveries.aggregate<Stored<Delivery> & Written & { format?: number }>(stages, { batchSize: 1000 }).toArray()
    const byQueue = Map.groupBy(found, idOf)
    return Promise.all(
      asked.map(async ({ queue, limit }): Promise<Candidates> => {
        const all = byQueue.get(idOf(queue)) ?? []
        if (!all.every(isKnown)) return beyondNewer(queue, now, limit)
        const earliest = sortedBy(all.map(marked), timeOf)
        const due = earliest.filter((one) => timeOf(one) <= now)
        const next = earliest[due.length]
        const times = [...(next ? [timeOf(next)] : []), ...(due.length > 0 ? [leaseUntil] : [])]
        const isCut = next === undefined && all.length === limit
        return { queue, due, later: isCut ? queue.at : times.length > 0 ? Math.min(...times) : null, isExact: true }
      }),
    )
  }

  /** Of a queue with documents of a newer program, which might fill the page. The time of the queue may be theirs. */
  async function beyondNewer(queue: DueDeliveryQueue, now: number, limit: number): Promise<Candidates> {
    const { tenant, host } = queue
    const isDue = { tenant, host, claimableAt: { $gt: 0, $lte: now }, ...KNOWN }
    const due = await readMarked(deliveries, isDue, { sort: { claimableAt: 1 }, limit })
    if (due.length > 0) return { queue, due, later: queue.at, isExact: false }
    const waiting = { tenant, host, claimableAt: { $gt: 0 } }
    const first = await deliveries.findOne(waiting, { projection: { claimableAt: 1 }, sort: { claimableAt: 1 } })
    return { queue, due, later: first?.claimableAt ?? null, isExact: true }
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

  /**
   * Remembers the due deliveries that are left, and returns the time of the queue if it changes. After remembered ones it does not:
   * one that was added since they were read may come before those that are left. A delivery that is added after a read changes the
   * mark of the queue, which was read before, and voids the move.
   */
  function settled({ queue, due: left, later, isExact }: Candidates, isLost: boolean): { queue: DueDeliveryQueue; at: number | null }[] {
    const [first] = left
    const at = isLost || !isExact ? queue.at : first ? timeOf(first) : later
    if (first && !isLost && at !== null) putNewest(ahead, idOf(queue), { at, due: left }, MAX_QUEUES_AHEAD)
    return at === queue.at ? [] : [{ queue, at }]
  }

  /** One claim at a time in this process, or after a timeout: concurrent claims of one process would only compete. */
  let last: Promise<unknown> = Promise.resolve()
  const serialized = (...args: Parameters<typeof claim>): Promise<Delivery[]> => {
    const claimed = last.then(() => claim(...args))
    last = withTimeout('store', VERB_TIMEOUT_MS, claimed).catch(() => {})
    return claimed
  }

  return { claimDeliveries: serialized }
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
function byTime({ due: [a] }: Candidates, { due: [b] }: Candidates): number {
  return (a ? timeOf(a) : 0) - (b ? timeOf(b) : 0)
}

/** When it is due, or its lease ends. */
function timeOf({ delivery: { nextAttemptAt, leaseUntil } }: Marked): number {
  return Math.max(nextAttemptAt ?? 0, leaseUntil ?? 0)
}
