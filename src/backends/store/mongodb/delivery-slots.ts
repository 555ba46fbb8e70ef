/** Numbered delivery slots per receiver, tenant and queue, counted for one claim. Pure. */
import { capOf, type DeliveryCaps } from '../task-store.ts'
import { idOf, type DeliveryQueue } from './delivery-queues.ts'

/** The slots of a leased delivery. */
export type TakenSlots = { hostSlot: string; tenantSlot: string; queueSlot: string }
export type Leased = DeliveryQueue & Partial<TakenSlots>

export type Slots = {
  areFree(queue: DeliveryQueue): boolean
  /** Takes a slot of the receiver, one of the tenant and one of the queue; requires `areFree`. */
  take(queue: DeliveryQueue): TakenSlots
  /** `queues`: ids. */
  full(): { hosts: string[]; tenants: string[]; queues: string[] }
}

export function openSlots(leased: Leased[], caps: DeliveryCaps): Slots {
  const { perHost, perTenant } = caps
  const hosts = numbered(
    ({ host }) => host,
    () => perHost,
  )
  const tenants = numbered(
    ({ tenant }) => tenant,
    () => perTenant,
  )
  const queues = numbered(idOf, (queue) => capOf(caps, queue))
  for (const one of leased) {
    hosts.hold(one, one.hostSlot)
    tenants.hold(one, one.tenantSlot)
    queues.hold(one, one.queueSlot)
  }
  return {
    areFree: (queue) => hosts.isFree(queue) && tenants.isFree(queue) && queues.isFree(queue),
    take: (queue) => ({ hostSlot: hosts.take(queue), tenantSlot: tenants.take(queue), queueSlot: queues.take(queue) }),
    full: () => ({ hosts: hosts.full(), tenants: tenants.full(), queues: queues.full() }),
  }
}

/** Each name has the slots `name 0` to `name max-1`. */
function numbered(nameOf: (queue: DeliveryQueue) => string, max: (queue: DeliveryQueue) => number) {
  const held = new Map<string, Set<string>>()
  const full = new Set<string>()
  /** No lower number is free. */
  const lowest = new Map<string, number>()
  const isFree = (queue: DeliveryQueue) => !full.has(nameOf(queue))

  function hold(queue: DeliveryQueue, slot: string | undefined): void {
    const name = nameOf(queue)
    const taken = held.get(name) ?? new Set()
    held.set(name, taken.add(slot ?? `${name} without a number`))
    if (taken.size >= max(queue)) full.add(name)
  }

  function take(queue: DeliveryQueue): string {
    const name = nameOf(queue)
    let n = lowest.get(name) ?? 0
    while (held.get(name)?.has(`${name} ${n}`)) n++
    lowest.set(name, n + 1)
    hold(queue, `${name} ${n}`)
    return `${name} ${n}`
  }

  return { hold, take, isFree, full: () => [...full] }
}
