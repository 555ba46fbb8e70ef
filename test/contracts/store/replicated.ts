/** Fault injection around any adapter, as over a remote replicated database: conflicts, writes with an unknown outcome, late writes. */
import { Unavailable } from '../../../src/domain/errors.ts'
import type { VersionedRecords } from '../../../src/backends/store/versioned-records.ts'
import type { Store } from '../../../src/backends/store/store.ts'
import type { Place } from '../store.ts'
import { seeded } from './acme.ts'

/** A place whose stores alternate between two handles, each with injected faults. */
export function asIfReplicated(place: Place, seed: number): Place {
  const random = seeded(seed)
  return {
    async open(options) {
      // Pauses take no time here, so there must be no deadline.
      const faulty = { retryForMs: Infinity, pause: async () => {}, wrap: (records: VersionedRecords) => withFaults(records, random), ...options }
      return alternating([await place.open(faulty), await place.open(faulty)])
    },
  }
}

function alternating(handles: [Store, Store]): Store {
  let calls = 0
  return new Proxy(handles[0], {
    get: (_, verb: keyof Store) => {
      if (verb === 'close') return () => Promise.all(handles.map((handle) => handle.close()))
      return Reflect.get(handles[calls++ % 2]!, verb)
    },
  })
}

/** Faults in four of ten writes and one of ten reads. */
export function withFaults(records: VersionedRecords, random: () => number): VersionedRecords {
  const lost = () => new Unavailable('store', new Error('no answer came'))

  async function rivalWrites(id: string): Promise<void> {
    const current = await records.read(id)
    if (current && current !== 'unchanged') await records.replace({ ...current, version: current.version + 1 }, current)
  }

  function writeLate(ticks: number, write: () => Promise<unknown>): void {
    setImmediate(() => (ticks === 0 ? void write().catch(() => {}) : writeLate(ticks - 1, write)))
  }

  return {
    unstored: records.unstored,
    async read(id, known) {
      if (random() < 0.1) throw lost()
      return records.read(id, known)
    },
    async replace(record, before) {
      const draw = random()
      if (draw < 0.1) throw lost()
      if (draw < 0.2) {
        await records.replace(record, before)
        throw lost()
      }
      if (draw < 0.3) {
        writeLate(Math.floor(random() * 4), () => records.replace(record, before))
        throw lost()
      }
      if (draw < 0.4) await rivalWrites(record.id)
      return records.replace(record, before)
    },
  }
}
