/** Refused requests of this process that are not in the store yet. They are added to the subscriptions' records every few seconds, in one change for each subscription. */
import { randomBytes } from 'node:crypto'
import type { Store } from '../../src/backends/store/store.ts'
import type { RefusalReason, RefusedDay } from '../../src/domain/subscription/refusals.ts'

export type RefusalCounts = {
  count(subscription: string, keyId: string, reason: RefusalReason): void
  /** Adds the counts to the records. Throws what the first failed change threw: the counts of that subscription are lost, those after it wait for the next call. */
  flush(): Promise<void>
}

const ID_BYTES = 6

/** `clock`: epoch milliseconds. */
export function openRefusalCounts(store: Pick<Store, 'change'>, clock: () => number): RefusalCounts {
  const waiting = new Map<string, { reasons: RefusedDay; keys: Record<string, number> }>()
  return {
    count(subscription, keyId, reason) {
      const { reasons, keys } = waiting.getOrInsertComputed(subscription, () => ({ reasons: {}, keys: {} }))
      reasons[reason] = (reasons[reason] ?? 0) + 1
      keys[keyId] = (keys[keyId] ?? 0) + 1
    },
    async flush() {
      const subscriptions = [...waiting.keys()]
      // One by one: nobody waits for them, and the requests of clients share the store.
      for (const subscription of subscriptions) {
        const counts = waiting.get(subscription)
        waiting.delete(subscription)
        if (counts)
          await store.change(subscription, { op: 'countRefusals', id: randomBytes(ID_BYTES).toString('base64url'), ...counts }, clock())
      }
    },
  }
}
