/** Subscription records in SQLite as JSON with the columns that indexes use, and archived periods. `subscription-holds.ts` has their holds. */
import type { MediaPeriod, Subscription } from '../../../domain/subscription/subscription.ts'
import { idsOf, type Store } from '../store.ts'
import type { Database } from './database.ts'
import { openUsageRows, usageRowOf, type UsageRow } from './usage-records.ts'
import { headOf, holdChanges, HOLDS, openHoldRows, type HoldChanges, type RecordRow } from './subscription-holds.ts'

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

/** Migration: the kind or operation of a price in a plan's terms is its `kind`. */
export const priceKinds = `
  UPDATE subscriptions SET record = json_set(record, '$.terms.media.prices', (
    SELECT json_group_array(json_set(json_remove(value, '$.verb'), '$.kind', value ->> '$.verb')) FROM json_each(record, '$.terms.media.prices')
  )) WHERE json_type(record, '$.terms.media.prices') = 'array';
`

type Due = { subscription: string; ready_at: number; last_served_at: number }

/** A record as it is stored: plain data, which may come from another thread. */
export type SubscriptionRow = {
  id: string
  version: number
  /** `has_plan`, `has_reservations`, `has_holds` and `has_past`. */
  flags: number[]
  record: string
  holds: HoldChanges
  usage: UsageRow[]
  /** Its usage records are to be published. */
  publishes: boolean
  /** `media.due` by kind; null without a media account. */
  due: { lastServedAt: number; entries: { kind: string; readyAt: number }[] } | null
}

/** The statements on records. */
export type SubscriptionRows = Pick<Store, 'subscriptionsDue' | 'archivePeriod' | 'periods'> & {
  /** A record; `unchanged` when its version is still `known`. */
  findRecord(id: string, known: number | undefined): Promise<RecordRow | 'unchanged' | null>
  /** Replaces the record of version `expected`; 0 means that there is none yet. */
  replaceRecord(row: SubscriptionRow, expected: number): Promise<'replaced' | 'conflict'>
  /** The ids of `subscriptionsWith`. */
  idsWith(...args: Parameters<Store['subscriptionsWith']>): Promise<string[]>
  /** The ids of `subscriptionsOf`. */
  idsOfTenant(...args: Parameters<Store['subscriptionsOf']>): Promise<string[]>
}

export function openSubscriptionRows(database: Database): SubscriptionRows {
  const find = database.prepare<RecordRow>(`SELECT record, ${HOLDS} FROM subscriptions WHERE id = ?`)
  const findVersion = database.prepare<{ version: number }>('SELECT version FROM subscriptions WHERE id = ?')
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
  const archived = database.records<MediaPeriod>('SELECT period AS record FROM periods WHERE subscription = ? ORDER BY n')
  const ids = (rows: { id: string }[]) => rows.map(({ id }) => id)

  return {
    findRecord: (id, known) =>
      database.read(() => {
        if (known !== undefined && findVersion.get(id)?.version === known) return 'unchanged'
        return find.get(id) ?? null
      }),
    replaceRecord: replacing(database),
    idsWith: (what, after, limit) => database.read(() => ids(listings[what].all(after, limit))),
    idsOfTenant: (tenant, after, limit) => {
      const [first, last] = idsOf(tenant)
      return database.read(() => ids(ofTenant.all(after || first, last, limit)))
    },
    subscriptionsDue: (kinds, now, limit) =>
      database.read(() => {
        const due = kinds.flatMap((kind) => unserved.all(kind, now, limit)).sort(byServing)
        return [...new Set(due.map((entry) => entry.subscription))].slice(0, limit)
      }),
    archivePeriod: async (id, period) => void (await database.write(() => archive.run(id, period.n, JSON.stringify(period)))),
    periods: (id) => database.read(() => archived.all(id)),
  }
}

function replacing(database: Database): SubscriptionRows['replaceRecord'] {
  const insert = database.prepare(
    `INSERT INTO subscriptions (version, record, id, has_plan, has_reservations, has_holds, has_past) VALUES (?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT DO NOTHING`,
  )
  // An UPDATE that names a column of an index writes that index, whether or not the value differs.
  const update = database.prepare(
    `UPDATE subscriptions SET version = ?, record = ?
     WHERE id = ? AND version = ? AND has_plan = ? AND has_reservations = ? AND has_holds = ? AND has_past = ?`,
  )
  const updateAll = database.prepare(
    `UPDATE subscriptions SET version = ?, record = ?, has_plan = ?, has_reservations = ?, has_holds = ?, has_past = ?
     WHERE id = ? AND version = ?`,
  )
  const writeHolds = openHoldRows(database)
  const writeUsage = openUsageRows(database)
  const undue = database.prepare('DELETE FROM subscriptions_due WHERE subscription = ? AND kind NOT IN (SELECT value FROM json_each(?))')
  const due = database.prepare(
    `INSERT INTO subscriptions_due (subscription, kind, ready_at, last_served_at) VALUES (?, ?, ?, ?)
     ON CONFLICT DO UPDATE SET ready_at = excluded.ready_at, last_served_at = excluded.last_served_at
       WHERE (ready_at, last_served_at) <> (excluded.ready_at, excluded.last_served_at)`,
  )

  function replace({ id, version, flags, record }: SubscriptionRow, expected: number): boolean {
    if (expected === 0) return insert.run(version, record, id, ...flags) === 1
    return update.run(version, record, id, expected, ...flags) === 1 || updateAll.run(version, record, ...flags, id, expected) === 1
  }

  return (row, expected) =>
    database.write(() => {
      if (!replace(row, expected)) return 'conflict'
      writeHolds(row.id, row.holds)
      writeUsage(row.id, row.usage, row.publishes)
      if (row.due) {
        undue.run(row.id, JSON.stringify(row.due.entries.map(({ kind }) => kind)))
        for (const { kind, readyAt } of row.due.entries) due.run(row.id, kind, readyAt, row.due.lastServedAt)
      }
      return 'replaced'
    })
}

/** `before`: the record that is replaced; null: there is none yet. */
export function rowOf(record: Subscription, before: Subscription | null, publishes: boolean): SubscriptionRow {
  const { id, version, media } = record
  const usage = record.outbox?.map(usageRowOf) ?? []
  const due = media && { lastServedAt: media.lastServedAt, entries: media.due.map(({ kind, readyAt }) => ({ kind, readyAt })) }
  return { id, version, flags: flags(record), record: headOf(record), holds: holdChanges(record, before), usage, publishes, due }
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
