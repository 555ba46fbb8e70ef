/** Settles what nobody will settle any more: the reservations of gateways that died, and our own whose admission was never answered. */
import type { Store } from '../../src/backends/store/store.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'

/** A gateway whose beat did not change for this long is dead. */
export const DEAD_MS = 45_000
/** Our own reservation that we do not know and that is older than this belongs to an admission whose outcome was never learned. */
export const UNKNOWN_MS = 30_000
const BATCH = 100

export type Sweep = {
  /** Releases our own reservations that we do not know and that are old. Every process does that for itself. Returns how many. */
  releaseOwn(now: number): Promise<number>
  /** Charges the reservations of dead gateways at their estimate. One process at a time. Returns how many. */
  expireDead(now: number): Promise<number>
  /** Charges the reservations of all others at their estimate: of a process that is alone with its store, every other one has ended. Returns how many. */
  expireOthers(now: number): Promise<number>
}

/** A gateway that reserved something and is not on the list of beats has this count. */
const NO_BEAT = -1

/** Makes the sweeps of one process. It judges by what it saw itself: an instance is dead when 45 s of successful looks saw the same beat, or none. */
export function reservationSweep(store: Store, instance: string, inFlight: (id: string) => boolean): Sweep {
  const seen = new Map<string, { count: number; since: number }>()
  /** Instances with reservations that had no beat at the last look. */
  let silent = new Set<string>()
  let lastLook = Number.NEGATIVE_INFINITY

  /** A pause in our own looking proves nothing about the others: their time starts anew. */
  function observe(beats: { instance: string; count: number }[], now: number): Set<string> {
    const gap = now - lastLook > DEAD_MS / 3
    lastLook = now
    const dead = new Set<string>()
    const listed = new Set(beats.map((beat) => beat.instance))
    const strangers = [...silent].filter((name) => !listed.has(name)).map((name) => ({ instance: name, count: NO_BEAT }))
    for (const beat of [...beats, ...strangers]) {
      const before = seen.get(beat.instance)
      if (!before || gap || before.count !== beat.count) seen.set(beat.instance, { count: beat.count, since: now })
      else if (beat.instance !== instance && now - before.since >= DEAD_MS) dead.add(beat.instance)
    }
    return dead
  }

  return {
    async releaseOwn(now) {
      let released = 0
      for await (const record of withReservations(store)) {
        for (const [id, reservation] of Object.entries(record.coding?.reservations ?? {})) {
          if (reservation.instance !== instance || inFlight(id) || now - reservation.at < UNKNOWN_MS) continue
          await store.change(record.id, { op: 'settle', id, usage: null, estimated: false }, now)
          released++
        }
      }
      return released
    },

    async expireDead(now) {
      const beats = await store.heartbeats()
      const dead = observe(beats, now)
      const listed = new Set(beats.map((beat) => beat.instance))
      const { expired, others } = await expire((owner) => dead.has(owner), now)
      silent = new Set(others.filter((owner) => !listed.has(owner)))
      for (const gone of dead) {
        await store.forgetInstance(gone)
        seen.delete(gone)
      }
      return expired
    },

    async expireOthers(now) {
      const { expired } = await expire(() => true, now)
      for (const beat of await store.heartbeats()) if (beat.instance !== instance) await store.forgetInstance(beat.instance)
      return expired
    },
  }

  /** `others`: whose reservations were left alone, beside our own. */
  async function expire(isDead: (owner: string) => boolean, now: number): Promise<{ expired: number; others: string[] }> {
    const others = new Set<string>()
    let expired = 0
    for await (const record of withReservations(store)) {
      const owners = new Set(Object.values(record.coding?.reservations ?? {}).map((reservation) => reservation.instance))
      owners.delete(instance)
      for (const owner of owners) {
        if (!isDead(owner)) others.add(owner)
        else {
          const answer = await store.change(record.id, { op: 'expire', instance: owner }, now)
          if (answer.outcome === 'settled') expired += answer.count
        }
      }
    }
    return { expired, others: [...others] }
  }
}

async function* withReservations(store: Store): AsyncGenerator<Subscription> {
  for (let after = ''; ; ) {
    const batch = await store.subscriptionsWith('reservations', after, BATCH)
    yield* batch
    const last = batch.at(-1)
    if (!last || batch.length < BATCH) return
    after = last.id
  }
}
