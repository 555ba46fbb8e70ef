/** `tollgate reseal`: encrypts API keys that an older sealing key encrypted with the first one, so that the older line can be dropped. */
import { isSealedByFirst, open, seal, type SealingKeys } from '../domain/api-keys.ts'
import type { Store } from '../backends/store/store.ts'
import { readAll } from '../tasks/paged-reads.ts'

/** Versions of API keys. `older`: encrypted by another line than the first; `resealed` of them. `unopened`: ids of those that no line opens. */
export type Resealed = { current: number; older: number; resealed: number; unopened: string[] }

/** Counts, and reseals with `iv`, which returns 12 random bytes; null only counts. A version that was erased or never sealed counts nowhere. */
export async function reseal(store: Store, sealing: SealingKeys, iv: (() => Uint8Array) | null): Promise<Resealed> {
  const counts: Resealed = { current: 0, older: 0, resealed: 0, unopened: [] }
  for await (const { id, sealed } of readAll(store, 'keys')) {
    if (sealed === null) continue
    const key = open(sealed, id, sealing)
    if (key === null) counts.unopened.push(id)
    else if (isSealedByFirst(sealed, sealing)) counts.current++
    else {
      counts.older++
      if (iv === null) continue
      await store.setKey(id, { sealed: seal(key, id, sealing, iv()) }, [])
      counts.resealed++
    }
  }
  return counts
}
