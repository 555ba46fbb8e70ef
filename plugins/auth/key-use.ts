/** When keys were last used. A request only notes it; the notes are written every few seconds, for each key at most once a minute. */
import type { Store } from '../../src/backends/store/store.ts'
import { putNewest } from '../../src/domain/long-lived-maps.ts'

export type KeyUse = {
  /** A request with this version of a key was accepted at `now` (epoch ms). */
  note(id: string, now: number): void
  /** Writes the notes. Throws `Unavailable`, and keeps those that may not be written for the next call. */
  flush(): Promise<void>
}

const RESOLUTION_MS = 60_000
/** Of each map. Above it, keys that are new wait for the next write. */
const MAX_KEYS = 10_000
const BATCH = 500

export function openKeyUse(store: Pick<Store, 'keysUsed'>): KeyUse {
  const noted = new Map<string, number>()
  const written = new Map<string, number>()
  return {
    note(id, now) {
      const isDue = now - (written.get(id) ?? -Infinity) >= RESOLUTION_MS
      if (noted.has(id) || (isDue && noted.size < MAX_KEYS)) noted.set(id, now)
    },
    async flush() {
      while (noted.size > 0) {
        const uses = [...noted].slice(0, BATCH).map(([id, at]) => ({ id, at }))
        await store.keysUsed(uses)
        for (const { id, at } of uses) {
          // One that was used during the write is not due for a minute.
          noted.delete(id)
          putNewest(written, id, at, MAX_KEYS)
        }
      }
    },
  }
}
