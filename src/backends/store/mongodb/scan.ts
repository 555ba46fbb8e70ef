/** Reading of everything that the MongoDB store keeps, in the order of `_id`. */
import { fromStoredRecord, type StoredSubscription } from '../../../domain/subscription/stored-subscription.ts'
import type { Kept, Store } from '../store.ts'
import { fromStored, type Database } from './database.ts'
import { DELIVERY } from './deliveries.ts'
import { RECORD } from './subscriptions.ts'
import { taskOf, type StoredTask } from './tasks.ts'

/** A document of a collection. The collections have the names of the kinds. */
type Document = { _id: string }

/** Without members that only indexes use. */
const PROJECTIONS = { subscriptions: RECORD, periods: {}, keys: {}, tasks: {}, deliveries: DELIVERY, events: {} }

/** Documents in one answer of the server: a record may have 2.5 megabytes. */
const BATCH = 10

export function openScan(database: Database): Pick<Store, 'scan'> {
  return {
    scan: async (what, after, limit) => {
      const page = database
        .collection<Document>(what)
        .find({ _id: { $gt: after ?? '' } }, { projection: PROJECTIONS[what], ...(what === 'subscriptions' && { batchSize: BATCH }) })
      const documents = await page.sort({ _id: 1 }).limit(limit).toArray()
      return {
        found: documents.map((document) => entityOf(what, document)),
        next: documents.length < limit ? null : (documents.at(-1)?._id ?? null),
      }
    },
  }
}

function entityOf<K extends keyof Kept>(what: K, document: Document): Kept[K] {
  if (what === 'tasks') return taskOf(document as StoredTask) as Kept[K]
  if (what === 'subscriptions') return fromStoredRecord(fromStored<StoredSubscription>(document)) as Kept[K]
  if (what !== 'periods') return fromStored<{ id: string }>(document) as unknown as Kept[K]
  const { _id, ...period } = document
  return period as unknown as Kept[K]
}
