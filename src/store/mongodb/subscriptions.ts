/** Subscriptions in MongoDB: the record as it is, and beside it what it is looked up by; and the periods that left their records. */
import type { MediaPeriod, Subscription } from '../../subscription/subscription.ts'
import type { Side } from '../changes.ts'
import type { Store } from '../store.ts'
import { add, nounOf, stored, type Database, type Stored } from './database.ts'
import { gathered } from './gathered.ts'
import type { Indexes } from './indexes.ts'

export const subscriptionIndexes = {
  subscriptions: [
    // subscriptionsWith
    { name: 'listed', key: { listed: 1, _id: 1 } },
    // subscriptionsDue. Of each kind those longest unserved come first.
    { name: 'due', key: { 'media.due.kind': 1, 'media.lastServedAt': 1, waitingSince: 1, _id: 1, 'media.due.readyAt': 1 } },
  ],
  periods: [
    // periods
    { name: 'of_subscription', key: { subscription: 1, n: 1 } },
  ],
} satisfies Indexes

type Listing = Parameters<Store['subscriptionsWith']>[0]
/** Follows from the record. `waitingSince`: the earliest of `media.due`. */
type Derived = { listed: Listing[]; waitingSince: number | null }
type Kept = Stored<Subscription> & Derived
type Period = MediaPeriod & { _id: string; subscription: string }
type Verbs = 'subscription' | 'subscriptionsWith' | 'subscriptionsDue' | 'archivePeriod' | 'periods'

const RECORD = { listed: 0, waitingSince: 0 } as const

export function openSubscriptions(database: Database): { side: Side; verbs: Pick<Store, Verbs> } {
  const subscriptions = database.collection<Kept>('subscriptions')
  const periods = database.collection<Period>('periods')

  async function subscription(id: string): Promise<Subscription | null> {
    const found = await subscriptions.findOne({ _id: id }, { projection: RECORD })
    return found ? nounOf(found) : null
  }

  async function subscriptionsWith(what: Listing, after: string, limit: number): Promise<Subscription[]> {
    const found: Subscription[] = []
    // A record may take half a megabyte: a page of them at once would keep every request of the process waiting.
    const options = { projection: RECORD, batchSize: Math.min(limit, 10) }
    for await (const one of subscriptions.find({ listed: what, _id: { $gt: after } }, options).sort({ _id: 1 }).limit(limit)) {
      found.push(nounOf(one))
    }
    return found
  }

  /** Longest unserved first, then longest ready, then by id. */
  async function subscriptionsDue(kinds: string[], now: number, limit: number): Promise<string[]> {
    const due = { 'media.due': { $elemMatch: { kind: { $in: kinds }, readyAt: { $lte: now } } } }
    const found = await subscriptions.find(due, { projection: { _id: 1 } }).sort({ 'media.lastServedAt': 1, waitingSince: 1, _id: 1 }).limit(limit).toArray()
    return found.map(({ _id }) => _id)
  }

  return {
    side: {
      read: (id, known) => database.ask(() => (known === undefined ? subscription(id) : readAgain(id, known))),
      replace: (record, expected) => database.ask(() => replace(record, expected)),
    },
    verbs: {
      subscription: gathered((id) => database.ask(() => subscription(id))),
      subscriptionsWith: (...page) => database.ask(() => subscriptionsWith(...page)),
      subscriptionsDue: (...due) => database.ask(() => subscriptionsDue(...due)),
      archivePeriod: async (id, period) => {
        await database.ask(() => add(periods, { _id: `${id}/${period.n}`, subscription: id, ...period }))
      },
      periods: (subscription) =>
        database.ask(() => periods.find<MediaPeriod>({ subscription }, { projection: { _id: 0, subscription: 0 } }).sort({ n: 1 }).toArray()),
    },
  }

  /** Half a megabyte stays where it is when the version says that we have it. */
  async function readAgain(id: string, known: number): Promise<Subscription | null | 'unchanged'> {
    const stages = [
      { $match: { _id: id } },
      { $replaceWith: { $cond: [{ $eq: ['$version', known] }, { unchanged: true }, '$$ROOT'] } },
      { $project: RECORD },
    ]
    const [found] = await subscriptions.aggregate<Stored<Subscription> | { unchanged: true }>(stages).toArray()
    if (!found) return null
    return 'unchanged' in found ? 'unchanged' : nounOf(found)
  }

  /** Compare-and-set by the version, which is no index's matter: one document has the id. */
  async function replace(record: Subscription, expected: number): Promise<'replaced' | 'conflict'> {
    const next = { ...stored(record), ...derived(record) }
    if (expected === 0) return (await add(subscriptions, next)) === 'added' ? 'replaced' : 'conflict'
    const { matchedCount } = await subscriptions.replaceOne({ _id: record.id, version: expected }, next)
    return matchedCount === 1 ? 'replaced' : 'conflict'
  }
}

function derived({ plan, coding, media }: Subscription): Derived {
  const has: Record<Listing, boolean> = {
    plan: plan !== null,
    reservations: Object.keys(coding?.reservations ?? {}).length > 0,
    holds: Object.keys(media?.holds ?? {}).length > 0,
    past: (media?.past.length ?? 0) > 0,
  }
  const readyAts = media?.due.map(({ readyAt }) => readyAt) ?? []
  return {
    listed: (Object.keys(has) as Listing[]).filter((what) => has[what]),
    waitingSince: readyAts.length > 0 ? Math.min(...readyAts) : null,
  }
}
