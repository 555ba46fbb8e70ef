/** Numbered delivery slots per receiver and tenant, counted for one claim. Pure. */
import type { DeliveryQueue } from './delivery-queues.ts'

/** A leased delivery and the slots that it holds. */
export type Leased = DeliveryQueue & { hostSlot?: string; tenantSlot?: string }

export type Slots = {
  areFree(queue: DeliveryQueue): boolean
  /** Takes a slot of the receiver and one of the tenant; requires `areFree`. */
  take(queue: DeliveryQueue): { hostSlot: string; tenantSlot: string }
  full(): { hosts: string[]; tenants: string[] }
}

export function openSlots(leased: Leased[], caps: { perHost: number; perTenant: number }): Slots {
  const hosts = numbered(caps.perHost)
  const tenants = numbered(caps.perTenant)
  for (const { host, tenant, hostSlot, tenantSlot } of leased) {
    hosts.hold(host, hostSlot)
    tenants.hold(tenant, tenantSlot)
  }
  return {
    areFree: ({ host, tenant }) => hosts.isFree(host) && tenants.isFree(tenant),
    take: ({ host, tenant }) => ({ hostSlot: hosts.take(host), tenantSlot: tenants.take(tenant) }),
    full: () => ({ hosts: hosts.full(), tenants: tenants.full() }),
  }
}

/** Each name has the slots `name 0` to `name max-1`. */
function numbered(max: number) {
  const held = new Map<string, Set<string>>()
  const of = (name: string) => held.get(name) ?? held.set(name, new Set()).get(name)!
  const isFree = (name: string) => (held.get(name)?.size ?? 0) < max

  function hold(name: string, slot: string | undefined): void {
    of(name).add(slot ?? `${name} without a number`)
  }

  function take(name: string): string {
    const taken = of(name)
    let n = 0
    while (taken.has(`${name} ${n}`)) n++
    taken.add(`${name} ${n}`)
    return `${name} ${n}`
  }

  return { hold, take, isFree, full: () => [...held.keys()].filter((name) => !isFree(name)) }
}
