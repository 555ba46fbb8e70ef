/** Settles what nobody will settle any more: the reservations of gateways that died, and our own whose admission was never answered. */
import type { Store } from '../../src/store/store.ts'
import type { Subscription } from '../../src/subscription/subscription.ts'

/** A gateway whose beat did not change for this long is dead. */
export const DEAD_MS = 45_000
/** Our own reservation that we do not know and that is older than this belongs to an admission whose outcome was never learned. */
export const UNKNOWN_MS = 30_000
const BATCH = 100

export type Sweep = (now: number) => Promise<{ expired: number; released: number }>

/** Makes the sweep of one process. It judges by what it saw itself: an instance is dead when 45 s of successful looks saw the same beat. */
export function reservationSweep(store: Store, instance: string, inFlight: (id: string) => boolean): Sweep {
  const seen = new Map<string, { count: number; since: number }>()
  let lastLook = Number.NEGATIVE_INFINITY

  /** A pause in our own looking proves nothing about the others: their time starts anew. */
  function observe(beats: { instance: string; count: number }[], now: number): Set<string> {
    const gap = now - lastLook > DEAD_MS / 3
    lastLook = now
    const dead = new Set<string>()
    for (const beat of beats) {
      const before = seen.get(beat.instance)
      if (!before || gap || before.count !== beat.count) seen.set(beat.instance, { count: beat.count, since: now })
      else if (beat.instance !== instance && now - before.since >= DEAD_MS) dead.add(beat.instance)
    }
    return dead
  }

  return async (now) => {
    const dead = observe(await store.beats(), now)
    let expired = 0
    let released = 0
    for await (const record of withReservations(store)) {
      const open = Object.entries(record.coding?.reservations ?? {})
      for (const gone of new Set(open.map(([, reservation]) => reservation.instance).filter((name) => dead.has(name)))) {
        const answer = await store.change(record.id, { op: 'expire', instance: gone }, now)
        if (answer.outcome === 'settled') expired += answer.count
      }
      for (const [id, reservation] of open) {
        if (reservation.instance !== instance || inFlight(id) || now - reservation.at < UNKNOWN_MS) continue
        await store.change(record.id, { op: 'settle', id, usage: null, estimated: false }, now)
        released++
      }
    }
    for (const gone of dead) {
      await store.forgetInstance(gone)
      seen.delete(gone)
    }
    return { expired, released }
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
