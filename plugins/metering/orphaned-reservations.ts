/** Sweep of orphaned reservations: expires those of dead gateways. `unknown-admissions.ts` releases our own. */
import type { Store } from '../../src/backends/store/store.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import { readPages } from '../../src/tasks/paged-reads.ts'
import { sweepEach } from '../../src/tasks/sweep-pass.ts'
import { DEAD_MS } from './gateway-heartbeat.ts'

/** How often all records with reservations are read to find a gateway without a heartbeat; and at once where one is dead. */
const READ_MS = 5_000
const BATCH = 100

export type Sweep = {
  /** Charges the reservations of dead gateways at their estimate. One process at a time. Returns their number. */
  expireDead(now: number): Promise<number>
  /**
   * Charges the reservations of all other instances at their estimate, for a process that is alone with its store. Returns their number. Nobody else makes any: once it has found them
   * all it returns 0 at once, and until then it is repeated.
   */
  expireOthers(now: number): Promise<number>
}

/** The count of a gateway that has reservations and no heartbeat. */
const NO_HEARTBEAT = -1

/**
 * The sweeps of one process. They rely on its own observations: an instance is dead when the successful sweeps of 45 s read the same heartbeat, or none. `failed` is called for
 * each record that cannot be changed now; the next sweep finds it again.
 */
export function reservationSweep(store: Store, instance: string, failed: (subscription: string, error: unknown) => void = () => {}): Sweep {
  const observed = new Map<string, { count: number; since: number }>()
  /** Instances with reservations and no heartbeat at the last sweep. */
  let silent = new Set<string>()
  let lastSweepAt = Number.NEGATIVE_INFINITY
  /** Nothing is left of other instances. */
  let isAlone = false
  let lastReadAt = Number.NEGATIVE_INFINITY

  /** After a gap between our own sweeps the time of every other instance starts anew. */
  function observe(beats: { instance: string; count: number }[], now: number): Set<string> {
    const gap = now - lastSweepAt > DEAD_MS / 3
    lastSweepAt = now
    const dead = new Set<string>()
    const listed = new Set(beats.map((beat) => beat.instance))
    const unlisted = [...silent].filter((name) => !listed.has(name)).map((name) => ({ instance: name, count: NO_HEARTBEAT }))
    for (const beat of [...beats, ...unlisted]) {
      const before = observed.get(beat.instance)
      if (!before || gap || before.count !== beat.count) observed.set(beat.instance, { count: beat.count, since: now })
      else if (beat.instance !== instance && now - before.since >= DEAD_MS) dead.add(beat.instance)
    }
    return dead
  }

  return {
    async expireDead(now) {
      const beats = await store.heartbeats()
      const dead = observe(beats, now)
      if (dead.size === 0 && now - lastReadAt < READ_MS) return 0
      lastReadAt = now
      const listed = new Set(beats.map((beat) => beat.instance))
      const { expired, others } = await expire((owner) => dead.has(owner), now)
      silent = new Set([...others].filter((owner) => !listed.has(owner)))
      for (const name of dead) {
        // Of a record that could not be changed.
        if (others.has(name)) continue
        await store.forgetInstance(name)
        observed.delete(name)
      }
      return expired
    },

    async expireOthers(now) {
      if (isAlone) return 0
      const { expired, others } = await expire(() => true, now)
      for (const beat of await store.heartbeats())
        if (beat.instance !== instance && !others.has(beat.instance)) await store.forgetInstance(beat.instance)
      isAlone = others.size === 0
      return expired
    },
  }

  /** `others`: the instances that have reservations afterwards, without our own: living ones, and dead ones in a record that could not be changed. */
  async function expire(isDead: (owner: string) => boolean, now: number): Promise<{ expired: number; others: Set<string> }> {
    const others = new Set<string>()
    let expired = 0
    const expireIn = async (record: Subscription): Promise<void> => {
      for (const owner of ownersIn(record)) {
        if (!isDead(owner)) continue
        const answer = await store.change(record.id, { op: 'expire', instance: owner }, now)
        if (answer.outcome === 'settled') expired += answer.count
      }
      for (const owner of ownersIn(record)) if (!isDead(owner)) others.add(owner)
    }
    const records = readPages(BATCH, (after) => store.subscriptionsWith('reservations', after, BATCH))
    await sweepEach(records, expireIn, (record, error) => {
      for (const owner of ownersIn(record)) others.add(owner)
      failed(record.id, error)
    })
    return { expired, others }
  }

  function ownersIn(record: Subscription): Set<string> {
    const owners = new Set(Object.values(record.coding?.reservations ?? {}).map((reservation) => reservation.instance))
    owners.delete(instance)
    return owners
  }
}
