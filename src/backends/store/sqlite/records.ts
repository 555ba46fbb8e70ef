/** Decoded subscription records over their rows, which the same thread or another one reads and writes. */
import { setImmediate as yieldToEventLoop } from 'node:timers/promises'
import { frozen } from '../../../domain/subscription/stored-subscription.ts'
import type { Subscription } from '../../../domain/subscription/subscription.ts'
import type { VersionedRecords } from '../versioned-records.ts'
import { openRecordCache } from '../record-cache.ts'
import type { Store, StoreOptions } from '../store.ts'
import { recordOf, sizeOf } from './subscription-holds.ts'
import { rowOf, type SubscriptionRow, type SubscriptionRows } from './subscriptions.ts'

type Verbs = 'subscription' | 'subscriptionsWith' | 'subscriptionsOf'
export type RecordRows = Omit<SubscriptionRows, 'replaceRecord'> & {
  /** `replaced` is called once the row is durable, also when the caller's patience was over before. */
  replaceRecord(row: SubscriptionRow, expected: number, replaced: () => void): Promise<'replaced' | 'conflict'>
}

export type Records = {
  records: VersionedRecords
  verbs: Pick<Store, Verbs>
  /** Forgets every decoded record: the outcome of a write is unknown. */
  forget(): void
}

/** With `isSole` nobody else writes the file, so that the record that was read or written last is the current one. */
export function openRecords(rows: RecordRows, { isSole = false, publishesUsage = false }: StoreOptions): Records {
  let cache = openRecordCache()

  function forget(): void {
    cache = openRecordCache()
  }

  /** The record as it is now; one that was parsed for it is kept, except in a scan of many: they would displace those in use. */
  async function current(id: string, keeps = true): Promise<Subscription | null> {
    const cached = cache.get(id)
    if (cached && isSole) return cached
    const { put, drops } = cache
    const before = drops()
    const found = await rows.findRecord(id, cached?.version)
    if (found === 'unchanged') return cached ?? null
    if (found === null) return null
    const record = recordOf(found)
    // A write that became durable meanwhile has put a later one, which may have been dropped since.
    const later = cache.get(id)
    if (later && later.version > record.version) return isSole ? later : record
    if (keeps && drops() === before) put(record, sizeOf(record))
    return record
  }

  async function all(ids: string[]): Promise<Subscription[]> {
    const found: Subscription[] = []
    for (const id of ids) {
      const record = await current(id, false)
      if (record) found.push(frozen(record))
      // A record may have 2.5 megabytes: parsing a page of them at once would block the event loop.
      await yieldToEventLoop()
    }
    return found
  }

  return {
    records: {
      ...(isSole ? { known: (id: string) => cache.get(id) } : {}),
      unstored: () => [],
      async read(id, known) {
        const record = await current(id)
        return record && record.version === known ? 'unchanged' : record
      },
      async replace(record, before) {
        const { put } = cache
        const row = rowOf(record, before, publishesUsage)
        const outcome = await rows.replaceRecord(row, before?.version ?? 0, () => put(record, sizeOf(record)))
        // A retry would find the same record again.
        if (outcome === 'conflict' && isSole) forget()
        return outcome
      },
    },
    verbs: {
      subscription: async (id) => {
        const record = await current(id)
        return record && frozen(record)
      },
      subscriptionsWith: async (what, after, limit) => all(await rows.idsWith(what, after, limit)),
      subscriptionsOf: async (tenant, after, limit) => all(await rows.idsOfTenant(tenant, after, limit)),
    },
    forget,
  }
}
