/** Any adapter as if it were a replicated database far away: conflicts, writes without an outcome, and writes that land late. */
import { Unavailable } from '../../../src/domain/errors.ts'
import type { Side } from '../../../src/backends/store/group-commit.ts'
import type { Store } from '../../../src/backends/store/store.ts'
import type { Place } from '../store.ts'
import { seeded } from './acme.ts'

/** A place where every store is two handles that take turns, and each handle's way to the data is bad. */
export function asIfReplicated(place: Place, seed: number): Place {
  const random = seeded(seed)
  return {
    async open(options) {
      // Nobody waits for a clock here: pauses take no time, so patience would be spent by counting alone.
      const calm = { patienceMs: Infinity, pause: async () => {}, between: (side: Side) => troubled(side, random), ...options }
      return takingTurns([await place.open(calm), await place.open(calm)])
    },
  }
}

function takingTurns(handles: [Store, Store]): Store {
  let turn = 0
  return new Proxy(handles[0], {
    get: (_, verb: keyof Store) => {
      if (verb === 'close') return () => Promise.all(handles.map((handle) => handle.close()))
      return Reflect.get(handles[turn++ % 2]!, verb)
    },
  })
}

/** Four in ten writes, and one in ten reads, do not go as their caller would like. */
export function troubled(side: Side, random: () => number): Side {
  const lost = () => new Unavailable('store', new Error('no answer came'))

  async function rivalWrites(id: string): Promise<void> {
    const current = await side.read(id)
    if (current && current !== 'unchanged') await side.replace({ ...current, version: current.version + 1 }, current.version)
  }

  function landLate(turns: number, land: () => Promise<unknown>): void {
    setImmediate(() => (turns === 0 ? void land().catch(() => {}) : landLate(turns - 1, land)))
  }

  return {
    async read(id, known) {
      if (random() < 0.1) throw lost()
      return side.read(id, known)
    },
    async replace(record, expected) {
      const fate = random()
      if (fate < 0.1) throw lost()
      if (fate < 0.2) {
        await side.replace(record, expected)
        throw lost()
      }
      if (fate < 0.3) {
        landLate(Math.floor(random() * 4), () => side.replace(record, expected))
        throw lost()
      }
      if (fate < 0.4) await rivalWrites(record.id)
      return side.replace(record, expected)
    },
  }
}
