/**
 * The records that a process read or wrote last, as objects. One with a thousand holds has a quarter of a megabyte, and is read and written
 * thousands of times.
 */
import type { Subscription } from '../../domain/subscription/subscription.ts'

/** A record may be used only where the store still has its version, or for a write that compares it. */
export type RecordCache = {
  get(id: string): Subscription | undefined
  /** `size`: about the bytes of the stored record. */
  put(record: Subscription, size: number): void
  /** How often all were dropped so far. */
  drops(): number
}

/** Sum of the sizes. Beyond it, all are dropped. */
const MAX_CACHED = 8 * 1024 * 1024

export function openRecordCache(): RecordCache {
  let cache = new Map<string, { record: Subscription; size: number }>()
  let total = 0
  let drops = 0
  return {
    get: (id) => cache.get(id)?.record,
    put(record, size) {
      total += size - (cache.get(record.id)?.size ?? 0)
      if (total > MAX_CACHED) {
        cache = new Map()
        drops++
      }
      if (cache.size === 0) total = size
      if (size <= MAX_CACHED) cache.set(record.id, { record, size })
    },
    drops: () => drops,
  }
}
