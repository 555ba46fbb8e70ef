/** Subscription records in SQLite as JSON with the columns that indexes use, and archived periods. */
import { setImmediate as yieldToEventLoop } from 'node:timers/promises'
import type { MediaPeriod, Subscription } from '../../../domain/subscription/subscription.ts'
import type { VersionedRecords } from '../group-commit.ts'
import { idsOf, type Store } from '../store.ts'
import type { Database } from './database.ts'

export const subscriptionTables = `
  CREATE TABLE subscriptions (
    id TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    has_plan INTEGER NOT NULL,
    has_reservations INTEGER NOT NULL,
    has_holds INTEGER NOT NULL,
    has_past INTEGER NOT NULL,
    record TEXT NOT NULL
  ) STRICT;
  CREATE INDEX subscriptions_with_plan ON subscriptions (id) WHERE has_plan = 1;
  CREATE INDEX subscriptions_with_reservations ON subscriptions (id) WHERE has_reservations = 1;
  CREATE INDEX subscriptions_with_holds ON subscriptions (id) WHERE has_holds = 1;
  CREATE INDEX subscriptions_with_past ON subscriptions (id) WHERE has_past = 1;

  -- media.due and media.lastServedAt of the records.
  CREATE TABLE subscriptions_due (
    subscription TEXT NOT NULL,
    kind TEXT NOT NULL,
    ready_at INTEGER NOT NULL,
    last_served_at INTEGER NOT NULL,
    PRIMARY KEY (subscription, kind)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX subscriptions_unserved ON subscriptions_due (kind, last_served_at, ready_at, subscription);

  CREATE TABLE periods (
    subscription TEXT NOT NULL,
    n INTEGER NOT NULL,
    period TEXT NOT NULL,
    PRIMARY KEY (subscription, n)
  ) STRICT;
`

type Row = { version: number; record: string }
type Due = { subscription: string; ready_at: number; last_served_at: number }
type Verbs = 'subscription' | 'subscriptionsWith' | 'subscriptionsOf' | 'subscriptionsDue' | 'archivePeriod' | 'periods'

/** Characters of JSON of the records cached as objects: one with a thousand holds has half a megabyte, and is read and written thousands of times. */
const MAX_CACHED = 8 * 1024 * 1024

export function openSubscriptions(database: Database): { records: VersionedRecords; verbs: Pick<Store, Verbs> } {
  const find = database.prepare<Row>('SELECT version, record FROM subscriptions WHERE id = ?')
  const findVersion = database.prepare<{ version: number }>('SELECT version FROM subscriptions WHERE id = ?')
  const cache = openCache()
  const listing = (column: string) =>
    database.prepare<{ id: string }>(`SELECT id FROM subscriptions WHERE ${column} = 1 AND id > ? ORDER BY id LIMIT ?`)
  const listings = {
    plan: listing('has_plan'),
    reservations: listing('has_reservations'),
    holds: listing('has_holds'),
    past: listing('has_past'),
  }
  const ofTenant = database.prepare<{ id: string }>('SELECT id FROM subscriptions WHERE id > ? AND id < ? ORDER BY id LIMIT ?')
  const unserved = database.prepare<Due>(
    `SELECT subscription, ready_at, last_served_at FROM subscriptions_due WHERE kind = ? AND ready_at <= ?
     ORDER BY last_served_at, ready_at, subscription LIMIT ?`,
  )
  const archive = database.prepare('INSERT INTO periods VALUES (?, ?, ?) ON CONFLICT DO NOTHING')
  const archived = database.prepare<{ period: string }>('SELECT period FROM periods WHERE subscription = ? ORDER BY n')

  async function subscription(id: string): Promise<Subscription | null> {
    const row = await database.read(() => find.get(id))
    return row ? parse(row) : null
  }

  async function records(listed: { id: string }[]): Promise<Subscription[]> {
    const found: Subscription[] = []
    for (const { id } of listed) {
      const record = await subscription(id)
      if (record) found.push(record)
      // A record may have half a megabyte: parsing a page of them at once would block the event loop.
      await yieldToEventLoop()
    }
    return found
  }

  /** Cached; callers must not mutate it. */
  function current(id: string): Subscription | null {
    const last = cache.get(id)
    if (last && findVersion.get(id)?.version === last.version) return last
    const row = find.get(id)
    if (!row) return null
    const record = parse(row)
    cache.put(record, row.record.length)
    return record
  }

  return {
    records: {
      read: (id, known) =>
        database.read(() => {
          const record = current(id)
          return record && record.version === known ? 'unchanged' : record
        }),
      replace: replacing(database, cache.put),
    },
    verbs: {
      subscription,
      subscriptionsWith: async (what, after, limit) => records(await database.read(() => listings[what].all(after, limit))),
      subscriptionsOf: async (tenant, after, limit) => {
        const [first, last] = idsOf(tenant)
        return records(await database.read(() => ofTenant.all(after || first, last, limit)))
      },
      subscriptionsDue: (kinds, now, limit) =>
        database.read(() => {
          const due = kinds.flatMap((kind) => unserved.all(kind, now, limit)).sort(byServing)
          return [...new Set(due.map((entry) => entry.subscription))].slice(0, limit)
        }),
      archivePeriod: async (id, period) => void (await database.write(() => archive.run(id, period.n, JSON.stringify(period)))),
      periods: (id) => database.read(() => archived.all(id).map((row) => JSON.parse(row.period) as MediaPeriod)),
    },
  }
}

type Cache = { get(id: string): Subscription | undefined; put(record: Subscription, size: number): void }

function openCache(): Cache {
  let cache = new Map<string, { record: Subscription; size: number }>()
  let total = 0
  return {
    get: (id) => cache.get(id)?.record,
    put(record, size) {
      total += size - (cache.get(record.id)?.size ?? 0)
      if (total > MAX_CACHED) cache = new Map()
      if (cache.size === 0) total = size
      if (size <= MAX_CACHED) cache.set(record.id, { record, size })
    },
  }
}

/** Calls `replaced` with the written record and the length of its JSON. */
function replacing(database: Database, replaced: Cache['put']): VersionedRecords['replace'] {
  const insert = database.prepare(
    `INSERT INTO subscriptions (version, has_plan, has_reservations, has_holds, has_past, record, id) VALUES (?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT DO NOTHING`,
  )
  const update = database.prepare(
    `UPDATE subscriptions SET version = ?, has_plan = ?, has_reservations = ?, has_holds = ?, has_past = ?, record = ?
     WHERE id = ? AND version = ?`,
  )
  const undue = database.prepare('DELETE FROM subscriptions_due WHERE subscription = ?')
  const due = database.prepare('INSERT INTO subscriptions_due (subscription, kind, ready_at, last_served_at) VALUES (?, ?, ?, ?)')

  return async (record, expected) => {
    const json = JSON.stringify(record)
    const columns = [record.version, ...flags(record), json, record.id]
    const outcome = await database.write(() => {
      const changes = expected === 0 ? insert.run(...columns) : update.run(...columns, expected)
      if (changes === 0) return 'conflict'
      if (record.media) {
        undue.run(record.id)
        for (const { kind, readyAt } of record.media.due) due.run(record.id, kind, readyAt, record.media.lastServedAt)
      }
      return 'replaced'
    })
    if (outcome === 'replaced') replaced(record, json.length)
    return outcome
  }
}

function parse(row: Row): Subscription {
  return JSON.parse(row.record) as Subscription
}

/** Longest unserved first, then longest ready. */
function byServing(a: Due, b: Due): number {
  return a.last_served_at - b.last_served_at || a.ready_at - b.ready_at
}

/** `has_plan`, `has_reservations`, `has_holds` and `has_past`. */
function flags({ plan, coding, media }: Subscription): number[] {
  const reserves = Object.keys(coding?.reservations ?? {}).length > 0
  const holds = Object.keys(media?.holds ?? {}).length > 0
  return [plan !== null, reserves, holds, (media?.past.length ?? 0) > 0].map(Number)
}
