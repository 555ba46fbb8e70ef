/** Subscription records in MongoDB with the members that indexes use, and archived periods. */
import { randomUUID } from 'node:crypto'
import type { Filter } from 'mongodb'
import { putNewest } from '../../../domain/long-lived-maps.ts'
import { changedHolds } from '../../../domain/subscription/holds.ts'
import {
  fromStoredRecord,
  frozen,
  toStoredRecord,
  toStoredTerms,
  type StoredSubscription,
} from '../../../domain/subscription/stored-subscription.ts'
import type { MediaPeriod, Subscription } from '../../../domain/subscription/subscription.ts'
import type { VersionedRecords } from '../versioned-records.ts'
import { openRecordCache } from '../record-cache.ts'
import { idsOf, type Store } from '../store.ts'
import { batchChanges, batchInserts, type Change, type Written } from './bulk-commands.ts'
import { add, fromStored, KNOWN, toStored, type Database, type Stored } from './database.ts'
import type { Indexes } from './indexes.ts'
import { createBatcher, type BatchOutcome } from '../../../concurrency/batching.ts'
import type { Outboxes } from './usage-records.ts'

export const subscriptionIndexes = {
  subscriptions: [
    // subscriptionsWith
    { name: 'listed', key: { listed: 1, _id: 1 } },
    // subscriptionsDue. For each kind, the longest unserved first. Records without a task that waits, such as those of coding plans, are not in it.
    {
      name: 'waiting',
      key: { 'media.due.kind': 1, 'media.lastServedAt': 1, waitingSince: 1, _id: 1 },
      partialFilterExpression: { waitingSince: { $gte: 0 } },
    },
  ],
  periods: [
    // periods
    { name: 'of_subscription', key: { subscription: 1, n: 1 } },
  ],
} satisfies Indexes

type Listing = Parameters<Store['subscriptionsWith']>[0] | 'usage'
/** Derived from the record. `waitingSince`: the earliest `readyAt` of `media.due`. */
type Derived = { listed: Listing[]; waitingSince: number | null }
type SubscriptionDocument = Stored<StoredSubscription> & Derived & Written
type Verbs = 'subscription' | 'subscriptionsWith' | 'subscriptionsOf' | 'subscriptionsDue' | 'archivePeriod' | 'periods'

const FOUND = { listed: 0, waitingSince: 0 } as const
export const RECORD = { ...FOUND, write: 0 } as const
/** Records whose `write` is remembered. */
const MAX_REMEMBERED = 10_000
/** So many are sent by themselves, whatever the number of the others. */
const MANY_HOLDS = 100

/** Records in one read, and the bytes of one that this process has not seen: with 10,000 holds it has 2.5 megabytes. */
const MAX_READS = 64
const UNKNOWN_BYTES = 256 * 1024
/** Holds of a record that is cached. */
const HOLDS_CACHED = 16

type Found = Stored<StoredSubscription> & Written
type Unchanged = { _id: string; unchanged: true }
type Lookup = { id: string; known?: number | undefined }
type Answer = Subscription | null | 'unchanged'

export function openSubscriptions(database: Database, outboxes: Outboxes): { records: VersionedRecords; verbs: Pick<Store, Verbs> } {
  const subscriptions = database.collection<SubscriptionDocument>('subscriptions')
  const periods = database.collection<MediaPeriod & { _id: string; subscription: string }>('periods')
  const cache = openRecordCache()
  const writes = new Map<string, { version: number; write: string | null; bytes: number }>()

  const insert = batchInserts(subscriptions, ({ _id }) => _id, weigh)
  const swap = batchChanges(subscriptions, weightOfChange)
  const read = createBatcher<Lookup, Answer>({
    backend: 'store',
    async send(lookups) {
      const outcomes = new Map((await findAll(lookups)).map((one) => [one._id, outcomeOf(one)]))
      return lookups.map(({ id }) => outcomes.get(id) ?? { answer: null })
    },
    idOf: ({ id }) => id,
    shares: true,
    most: MAX_READS,
    weigh: ({ id }) => writes.get(id)?.bytes ?? UNKNOWN_BYTES,
  })

  function outcomeOf(found: Found | Unchanged): BatchOutcome<Answer> {
    if ('unchanged' in found) return { answer: 'unchanged' }
    const { write, ...document } = found
    try {
      const answer = recordOf(document)
      if (document.outbox) outboxes.found(document.outbox)
      remember(answer, write)
      return { answer }
    } catch (failure) {
      return { failure }
    }
  }

  /** By the `write` of its version, many records are changed in one statement. */
  function remember(record: Subscription, write: string | undefined): void {
    putNewest(writes, record.id, { version: record.version, write: write ?? null, bytes: bytesOf(record) }, MAX_REMEMBERED)
  }

  /** From the cache where the store still has the version of the cached record. */
  async function current(id: string): Promise<Subscription | null> {
    const cached = cache.get(id)
    const found = await read({ id, known: cached?.version })
    if (found === 'unchanged') return cached ?? null
    if (found) keep(found)
    return found
  }

  /** A small record is sent as fast as its version. */
  function keep(record: Subscription): void {
    if (cache.get(record.id) || (record.media?.holds.count ?? 0) >= HOLDS_CACHED) cache.put(record, bytesOf(record))
  }

  /** A record is not sent when all of its readers already have its version. */
  async function findAll(lookups: Lookup[]): Promise<(Found | Unchanged)[]> {
    const wanted = Map.groupBy(lookups, ({ id }) => id)
    const known = [...wanted].flatMap(([id, [first, ...others]]) =>
      first?.known !== undefined && others.every((one) => one.known === first.known) ? [{ id, version: first.known }] : [],
    )
    const among = { _id: { $in: [...wanted.keys()] } }
    if (known.length === 0) return subscriptions.find(among, { projection: FOUND }).toArray()
    const isKnown = { $or: known.map(({ id, version }) => ({ $and: [{ $eq: ['$_id', id] }, { $eq: ['$version', version] }] })) }
    const stages = [
      { $match: among },
      { $replaceWith: { $cond: [isKnown, { _id: '$_id', unchanged: true }, '$$ROOT'] } },
      { $project: FOUND },
    ]
    return subscriptions.aggregate<Found | Unchanged>(stages).toArray()
  }

  async function page(filter: Filter<SubscriptionDocument>, limit: number): Promise<Subscription[]> {
    const found: Subscription[] = []
    // In small batches: parsing a page of records, up to 2.5 megabytes each, would block the event loop.
    const options = { projection: RECORD, batchSize: Math.min(limit, 10) }
    for await (const one of subscriptions.find(filter, options).sort({ _id: 1 }).limit(limit)) {
      found.push(recordOf(one))
    }
    return found
  }

  /** Longest unserved first, then longest ready, then by id. */
  async function subscriptionsDue(kinds: string[], now: number, limit: number): Promise<string[]> {
    const due = { 'media.due': { $elemMatch: { kind: { $in: kinds }, readyAt: { $lte: now } } }, waitingSince: { $gte: 0, $lte: now } }
    const sort = { 'media.lastServedAt': 1, waitingSince: 1, _id: 1 } as const
    const found = await subscriptions.find(due, { projection: { _id: 1 }, sort, limit }).toArray()
    return found.map(({ _id }) => _id)
  }

  return {
    records: {
      read: (id, known) => database.run<Answer>(() => (known === undefined ? current(id) : read({ id, known }))),
      unstored: outboxes.unstored,
      replace: (record, before) => database.run(() => replace(record, before)),
    },
    verbs: {
      subscription: async (id) => {
        const record = await current(id)
        return record && frozen(record)
      },
      subscriptionsWith: (what, after, limit) => page({ listed: what, _id: { $gt: after }, ...KNOWN }, limit),
      subscriptionsOf: (tenant, after, limit) => {
        const [first, last] = idsOf(tenant)
        return page({ _id: { $gt: after || first, $lt: last } }, limit)
      },
      subscriptionsDue,
      archivePeriod: async (id, period) => {
        await add(periods, { _id: `${id}/${period.n}`, subscription: id, ...period })
      },
      periods: (subscription) =>
        periods.find<MediaPeriod>({ subscription }, { projection: { _id: 0, subscription: 0 }, sort: { n: 1 } }).toArray(),
    },
  }

  /** Compare-and-set by the version. */
  async function replace(record: Subscription, before: Subscription | null): Promise<'replaced' | 'conflict'> {
    if (record.outbox) await outboxes.relieve(record.outbox)
    const write = randomUUID()
    const isDone = before
      ? (await swap(changeOf(record, before, write))) === 'swapped'
      : (await insert(documentOf(record, write))) === 'added'
    if (isDone) remember(record, write)
    if (isDone) keep(record)
    if (isDone && record.outbox) outboxes.written(record.outbox, record.at)
    return isDone ? 'replaced' : 'conflict'
  }

  /** The record without what stays as it is, where it is known which write stored that; otherwise as a whole. */
  function changeOf(record: Subscription, before: Subscription, write: string): Change {
    const seen = writes.get(record.id)
    const expected =
      seen?.version === before.version ? { last: seen.write, when: {} } : { last: undefined, when: { version: before.version } }
    const whole = { ...expected, next: documentOf(record, write), isWhole: true }
    const { media, terms, ...facts } = record
    if (!expected.last || !media || !before.media) return whole
    const { holds, ...account } = media
    const { set, gone } = changedHolds(before.media.holds, holds)
    // As when the record was healed, which makes every hold anew.
    if (set.length + gone.length > Math.max(MANY_HOLDS, holds.count / 2)) return whole
    const changedTerms = terms === before.terms ? {} : { terms: toStoredTerms(terms) }
    return {
      ...expected,
      next: { ...toStored(facts), ...changedTerms, ...derived(record), write },
      within: { 'media.holds': Object.fromEntries(set), media: account },
      // A task is held by one plan: no other record of the command has its hold.
      removed: ['outbox', ...gone.map((id) => `media.holds.${id}`)],
    }
  }
}

function documentOf(record: Subscription, write: string): SubscriptionDocument & { write: string } {
  return { ...toStored(toStoredRecord(record)), ...derived(record), write }
}

function recordOf(document: Stored<StoredSubscription>): Subscription {
  return fromStoredRecord(fromStored(document))
}

/** Approximate bytes of a record: open holds and reservations make up nearly all. */
function weigh({ media, coding, outbox }: SubscriptionDocument): number {
  return weightOf(Object.keys(media?.holds ?? {}).length, coding) + 300 * (outbox?.length ?? 0)
}

function weightOfChange({ next, isWhole, within, removed = [] }: Change): number {
  if (isWhole) return weigh(next as SubscriptionDocument)
  return weightOf(Object.keys(within?.['media.holds'] ?? {}).length, null) + 50 * removed.length + 300 * (next['outbox']?.length ?? 0)
}

function bytesOf({ media, coding }: Subscription): number {
  return weightOf(media?.holds.count ?? 0, coding)
}

function weightOf(holds: number, coding: Subscription['coding']): number {
  return 1000 + 250 * (holds + Object.keys(coding?.reservations ?? {}).length)
}

function derived({ plan, coding, media, outbox }: Subscription): Derived {
  const has: Record<Listing, boolean> = {
    plan: plan !== null,
    reservations: Object.keys(coding?.reservations ?? {}).length > 0,
    holds: (media?.holds.count ?? 0) > 0,
    past: (media?.past.length ?? 0) > 0,
    usage: outbox !== undefined,
  }
  const readyAts = media?.due.map(({ readyAt }) => readyAt) ?? []
  return {
    listed: (Object.keys(has) as Listing[]).filter((what) => has[what]),
    waitingSince: readyAts.length > 0 ? Math.min(...readyAts) : null,
  }
}
