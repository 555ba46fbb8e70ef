/** Subscription records in SQLite as JSON with the columns that indexes use, and archived periods. `subscription-holds.ts` has their holds. */
import { setImmediate as yieldToEventLoop } from 'node:timers/promises'
import { frozen } from '../../../domain/subscription/stored-subscription.ts'
import type { MediaPeriod, Subscription } from '../../../domain/subscription/subscription.ts'
import type { VersionedRecords } from '../group-commit.ts'
import { openRecordCache, type RecordCache } from '../record-cache.ts'
import { idsOf, type Store } from '../store.ts'
import type { Database } from './database.ts'
import { headOf, HOLDS, openHoldRows, recordOf, sizeOf, type RecordRow } from './subscription-holds.ts'

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

type Due = { subscription: string; ready_at: number; last_served_at: number }
type Verbs = 'subscription' | 'subscriptionsWith' | 'subscriptionsOf' | 'subscriptionsDue' | 'archivePeriod' | 'periods'

export function openSubscriptions(database: Database): { records: VersionedRecords; verbs: Pick<Store, Verbs> } {
  const find = database.prepare<RecordRow>(`SELECT record, ${HOLDS} FROM subscriptions WHERE id = ?`)
  const findVersion = database.prepare<{ version: number }>('SELECT version FROM subscriptions WHERE id = ?')
  const cache = openRecordCache()
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

  async function subscription(id: string, keep = cache.put): Promise<Subscription | null> {
    const record = await database.read(() => current(id, keep))
    return record && frozen(record)
  }

  async function records(listed: { id: string }[]): Promise<Subscription[]> {
    const found: Subscription[] = []
    for (const { id } of listed) {
      // Not cached: a page of records would displace those in use.
      const record = await subscription(id, () => {})
      if (record) found.push(record)
      // A record may have 2.5 megabytes: parsing a page of them at once would block the event loop.
      await yieldToEventLoop()
    }
    return found
  }

  /** From the cache where the stored version is still that of the cached record. */
  function current(id: string, keep = cache.put): Subscription | null {
    const last = cache.get(id)
    if (last && findVersion.get(id)?.version === last.version) return last
    const row = find.get(id)
    if (!row) return null
    const record = recordOf(row)
    keep(record, sizeOf(record))
    return record
  }

  return {
    records: {
      read: (id, known) =>
        database.read(() => {
          const record = current(id)
          return record && record.version === known ? 'unchanged' : record
        }),
      replace: replacing(database, cache),
    },
    verbs: {
      subscription: (id) => subscription(id),
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

function replacing(database: Database, cache: RecordCache): VersionedRecords['replace'] {
  const insert = database.prepare(
    `INSERT INTO subscriptions (version, has_plan, has_reservations, has_holds, has_past, record, id) VALUES (?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT DO NOTHING`,
  )
  const update = database.prepare(
    `UPDATE subscriptions SET version = ?, has_plan = ?, has_reservations = ?, has_holds = ?, has_past = ?, record = ?
     WHERE id = ? AND version = ?`,
  )
  const writeHolds = openHoldRows(database)
  const undue = database.prepare('DELETE FROM subscriptions_due WHERE subscription = ?')
  const due = database.prepare('INSERT INTO subscriptions_due (subscription, kind, ready_at, last_served_at) VALUES (?, ?, ?, ?)')

  return async (record, expected) => {
    const columns = [record.version, ...flags(record), headOf(record), record.id]
    const cached = cache.get(record.id)
    const before = cached?.version === expected ? cached : undefined
    const outcome = await database.write(() => {
      const changes = expected === 0 ? insert.run(...columns) : update.run(...columns, expected)
      if (changes === 0) return 'conflict'
      writeHolds(record, before)
      if (record.media) {
        undue.run(record.id)
        for (const { kind, readyAt } of record.media.due) due.run(record.id, kind, readyAt, record.media.lastServedAt)
      }
      return 'replaced'
    })
    if (outcome === 'replaced') cache.put(record, sizeOf(record))
    return outcome
  }
}

/** Longest unserved first, then longest ready. */
function byServing(a: Due, b: Due): number {
  return a.last_served_at - b.last_served_at || a.ready_at - b.ready_at
}

/** `has_plan`, `has_reservations`, `has_holds` and `has_past`. */
function flags({ plan, coding, media }: Subscription): number[] {
  const reserves = Object.keys(coding?.reservations ?? {}).length > 0
  const holds = (media?.holds.count ?? 0) > 0
  return [plan !== null, reserves, holds, (media?.past.length ?? 0) > 0].map(Number)
}
