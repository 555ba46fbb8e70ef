/** Refused requests of this process that are not in the store yet. They are added to the subscriptions' records every few seconds, in one change for each subscription. */
import { randomBytes } from 'node:crypto'
import type { Store } from '../../src/backends/store/store.ts'
import type { RefusalReason, RefusedDay } from '../../src/domain/subscription/refusals.ts'

export type RefusalCounts = {
  count(subscription: string, keyId: string, reason: RefusalReason): void
  /** Adds the counts to the records. Throws what the last failed change threw; the counts of that subscription are lost. */
  flush(): Promise<void>
}

type Counts = { reasons: RefusedDay; keys: Record<string, number> }

const ID_BYTES = 6

/** `clock`: epoch milliseconds. */
export function openRefusalCounts(store: Pick<Store, 'change'>, clock: () => number): RefusalCounts {
  let waiting = new Map<string, Counts>()
  return {
    count(subscription, keyId, reason) {
      const { reasons, keys } = waiting.getOrInsertComputed(subscription, () => ({ reasons: {}, keys: {} }))
      reasons[reason] = (reasons[reason] ?? 0) + 1
      keys[keyId] = (keys[keyId] ?? 0) + 1
    },
    async flush() {
      const errors: unknown[] = []
      const counted = waiting
      waiting = new Map()
      // One by one: nobody waits for them, and the requests of clients share the store.
      for (const [subscription, counts] of counted) {
        const id = randomBytes(ID_BYTES).toString('base64url')
        await store.change(subscription, { op: 'countRefusals', id, ...counts }, clock()).catch((error: unknown) => errors.push(error))
      }
      if (errors.length > 0) throw errors.at(-1)
    },
  }
}
