/**
 * Usage records in MongoDB. A charge writes them into the record of its plan, from where its process stores them as documents of their own in the background; whoever
 * writes the plan's record next keeps those that it has not seen stored. So a process may end at any moment: the sweep finds what it left.
 */
import type { Filter } from 'mongodb'
import type { StoredSubscription } from '../../../domain/subscription/stored-subscription.ts'
import { byPosition, startOf, type UsageRecord } from '../../../domain/usage-records.ts'
import type { Store, StoreOptions } from '../store.ts'
import { batchInserts, type Written } from './bulk-commands.ts'
import { fromStored, KNOWN, toStored, type Database, type Stored } from './database.ts'
import type { Indexes } from './indexes.ts'

export const usageIndexes = {
  usage_records: [
    // usageRecords
    { name: 'of_subscription', key: { subscription: 1, at: 1, _id: 1 } },
    // removeUsage
    { name: 'charged', key: { at: 1 } },
    // unpublishedUsage
    { name: 'unpublished', key: { unpublished: 1, at: 1 }, partialFilterExpression: { unpublished: true } },
  ],
} satisfies Indexes

/** Records of these plans have usage records in them. */
type Holder = Pick<Stored<StoredSubscription>, '_id' | 'version' | 'at' | 'outbox'> & { listed: string[] } & Written
type StoredUsage = Stored<UsageRecord> & { unpublished?: true | null } & Written

type Verbs = 'usageRecords' | 'storeOutboxes' | 'unpublishedUsage' | 'usagePublished' | 'removeUsage' | 'usageFloor'

/** What the records of plans need. */
export type Outboxes = {
  /** Those that this process has not seen stored. */
  unstored(outbox: UsageRecord[]): UsageRecord[]
  /** The record of a plan was written with these, at the time `at`: stores them in the background. */
  written(outbox: UsageRecord[], at: number): void
  /** Waits for what is being stored, where the record of a plan has become large by them: it would grow until its document is too large. */
  relieve(outbox: UsageRecord[]): Promise<void>
  /** The record of a plan was read with these: another process made them. */
  found(outbox: UsageRecord[]): void
}

/** Ids that are remembered as stored. A forgotten one is kept, or stored again, which changes nothing. */
const MAX_REMEMBERED = 10_000
/** So many usage records of other processes stay in the record of a plan, and so long: above, a process that may stores them too. */
const MAX_FOREIGN = 64
const FOREIGN_MS = 10_000
/** Usage records in the record of a plan: its writes wait for them from here on. One command inserts as many. */
const MAX_OUTBOX = 500
/** Ids in one update. */
const MAX_PUBLISHED = 500

/** The latest time before which usage records were removed, in one document. */
type Floor = { _id: 'usage'; at: number }
type Options = Pick<StoreOptions, 'publishesUsage' | 'storesUsageOfOthers'>

export function openUsageRecords(
  database: Database,
  { publishesUsage = false, storesUsageOfOthers = false }: Options,
): { outboxes: Outboxes; verbs: Pick<Store, Verbs> } {
  const collection = database.collection<StoredUsage>('usage_records')
  const holders = database.collection<Holder>('subscriptions')
  const floors = database.collection<Floor>('usage_floors')
  const insert = batchInserts(
    collection,
    ({ _id }) => _id,
    () => 400,
    MAX_OUTBOX,
  )
  const stored = new Set<string>()
  const inProgress = new Set<string>()
  const insertions = new Set<Promise<void>>()
  const foreign = new WeakSet<UsageRecord>()

  /** One that is there stays as it is. */
  const store = (record: UsageRecord) => insert({ ...toStored(record), ...(publishesUsage ? { unpublished: true } : {}) })

  async function storeOwn(records: UsageRecord[]): Promise<void> {
    const each = async (record: UsageRecord) => {
      inProgress.add(record.id)
      try {
        await store(record)
        stored.add(record.id)
      } catch {
        // It stays in the record of its plan: its next write, or the sweep, tries again.
      } finally {
        inProgress.delete(record.id)
      }
    }
    // A store that is closed leaves them to the sweep.
    await database.run(() => Promise.all(records.map(each))).catch(() => {})
    for (const id of stored) {
      if (stored.size <= MAX_REMEMBERED) break
      stored.delete(id)
    }
  }

  async function storeOutbox({ _id, version, outbox = [] }: Holder): Promise<void> {
    await Promise.all(outbox.map(store))
    // Where another process has written meanwhile, it has decided what stays.
    await holders.updateOne({ _id, version }, { $unset: { outbox: '' }, $pull: { listed: 'usage' } })
  }

  return {
    outboxes: {
      unstored: (outbox) => outbox.filter(({ id }) => !stored.has(id)),
      written(outbox, at) {
        const isFull = outbox.length > MAX_FOREIGN
        const isDue = (one: UsageRecord) => !foreign.has(one) || (storesUsageOfOthers && (isFull || at - one.at > FOREIGN_MS))
        const due = outbox.filter((one) => !stored.has(one.id) && !inProgress.has(one.id) && isDue(one))
        if (due.length === 0) return
        const insertion = storeOwn(due).finally(() => insertions.delete(insertion))
        insertions.add(insertion)
      },
      async relieve(outbox) {
        if (outbox.length > MAX_OUTBOX) await Promise.all(insertions)
      },
      found(outbox) {
        for (const one of outbox) foreign.add(one)
      },
    },
    verbs: {
      usageRecords: async (subscription, range, after, limit) => {
        // First what is not stored by itself: it may be meanwhile.
        const holder = await holders.findOne({ _id: subscription }, { projection: { outbox: 1 } })
        const { until } = range
        const from = startOf(range, after)
        const isIn = (one: UsageRecord) => byPosition(one, from) > 0 && one.at < until
        const isAfter = { $or: [{ at: { $gt: from.at } }, { at: from.at, _id: { $gt: from.id } }] }
        const filter = { subscription, at: { $gte: from.at, $lt: until }, ...isAfter } as Filter<StoredUsage>
        const page = collection.find(filter, { projection: { unpublished: 0 } }).sort({ at: 1, _id: 1 })
        const found = (await page.limit(limit).toArray()).map(fromStored<UsageRecord>)
        const ids = new Set(found.map(({ id }) => id))
        const others = (holder?.outbox ?? []).filter((one) => isIn(one) && !ids.has(one.id))
        return [...found, ...others].sort(byPosition).slice(0, limit)
      },
      storeOutboxes: async (before, limit) => {
        const left = await holders
          .find({ listed: 'usage', at: { $lt: before }, ...KNOWN }, { projection: { version: 1, outbox: 1 }, limit })
          .toArray()
        for (const holder of left) await storeOutbox(holder)
        return left.length
      },
      unpublishedUsage: async (limit) => {
        const found = collection.find({ unpublished: true, ...KNOWN }, { projection: { unpublished: 0 } })
        return (await found.sort({ at: 1 }).limit(limit).toArray()).map(fromStored<UsageRecord>)
      },
      usagePublished: async (records) => {
        for (let n = 0; n < records.length; n += MAX_PUBLISHED) {
          const ids = records.slice(n, n + MAX_PUBLISHED).map(({ id }) => id)
          await collection.updateMany({ _id: { $in: ids } }, { $unset: { unpublished: '' } })
        }
      },
      removeUsage: async (before, limit, which) => {
        const filter = { at: { $lt: before }, ...(which === 'all' ? {} : { unpublished: null }) }
        const found = collection.find(filter, { projection: { _id: 1 } })
        const old = await found.sort({ at: 1 }).limit(limit).toArray()
        if (old.length === 0) return 0
        // First, so that who misses a record finds why.
        await floors.updateOne({ _id: 'usage' }, { $max: { at: before } }, { upsert: true })
        return (await collection.deleteMany({ _id: { $in: old.map(({ _id }) => _id) } })).deletedCount
      },
      usageFloor: async () => (await floors.findOne({ _id: 'usage' }))?.at ?? 0,
    },
  }
}
