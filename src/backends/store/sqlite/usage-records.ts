/** Usage records in SQLite, each inserted in one transaction with the record of its plan. */
import { startOf, type UsageRecord } from '../../../domain/usage-records.ts'
import type { Store } from '../store.ts'
import type { Database } from './database.ts'

/** Migration that adds usage records. `unpublished` is 1 until it was published, else null. */
export const usageTables = `
  CREATE TABLE usage_records (
    subscription TEXT NOT NULL,
    at INTEGER NOT NULL,
    id TEXT NOT NULL,
    unpublished INTEGER,
    facts TEXT NOT NULL,
    PRIMARY KEY (subscription, at, id)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX usage_records_at ON usage_records (at);
  CREATE INDEX usage_records_unpublished ON usage_records (at) WHERE unpublished = 1;
`

/** Migration that adds the latest time before which usage records were removed, in one row. */
export const usageFloorTable = `
  CREATE TABLE usage_floor (id INTEGER PRIMARY KEY CHECK (id = 1), at INTEGER NOT NULL) STRICT;
`

type Row = { subscription: string; at: number; id: string; facts: string }
/** A record as it is inserted with the row of its plan. */
export type UsageRow = Pick<Row, 'at' | 'id' | 'facts'>

type Verbs = 'usageRecords' | 'storeOutboxes' | 'unpublishedUsage' | 'usagePublished' | 'removeUsage' | 'usageFloor'

/** Returns the write of usage records, to be made in one transaction with the row of their plan. */
export function openUsageRows(database: Database): (subscription: string, rows: UsageRow[], publishes: boolean) => void {
  const insert = database.prepare(
    'INSERT INTO usage_records (subscription, at, id, unpublished, facts) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING',
  )
  return (subscription, rows, publishes) => {
    for (const { at, id, facts } of rows) insert.run(subscription, at, id, publishes ? 1 : null, facts)
  }
}

export function openUsageRecords(database: Database): Pick<Store, Verbs> {
  const columns = 'SELECT subscription, at, id, facts FROM usage_records'
  const page = database.prepare<Row>(`${columns} WHERE subscription = ? AND (at, id) > (?, ?) AND at < ? ORDER BY at, id LIMIT ?`)
  const unpublished = database.prepare<Row>(`${columns} WHERE unpublished = 1 ORDER BY at LIMIT ?`)
  const publish = database.prepare('UPDATE usage_records SET unpublished = NULL WHERE subscription = ? AND at = ? AND id = ?')
  const remove = database.prepare(
    `DELETE FROM usage_records WHERE (subscription, at, id) IN
     (SELECT subscription, at, id FROM usage_records WHERE at < ? AND (? = 'all' OR unpublished IS NULL) ORDER BY at LIMIT ?)`,
  )
  const floor = database.prepare<{ at: number }>('SELECT at FROM usage_floor')
  const raise = database.prepare('INSERT INTO usage_floor VALUES (1, ?) ON CONFLICT DO UPDATE SET at = excluded.at WHERE at < excluded.at')
  return {
    usageRecords: (subscription, range, after, limit) =>
      database.read(() => {
        const from = startOf(range, after)
        return page.all(subscription, from.at, from.id, range.until, limit).map(recordOf)
      }),
    // No process ends between the two.
    storeOutboxes: async () => 0,
    unpublishedUsage: (limit) => database.read(() => unpublished.all(limit).map(recordOf)),
    usagePublished: async (records) =>
      void (await database.write(() => {
        for (const { subscription, at, id } of records) publish.run(subscription, at, id)
      })),
    removeUsage: (before, limit, which) =>
      database.write(() => {
        const removed = remove.run(before, which, limit)
        if (removed > 0) raise.run(before)
        return removed
      }),
    usageFloor: () => database.read(() => floor.get()?.at ?? 0),
  }
}

/** The row of a record, which is inserted with its plan's. */
export function usageRowOf({ subscription: _its, at, id, ...facts }: UsageRecord): UsageRow {
  return { at, id, facts: JSON.stringify(facts) }
}

function recordOf({ facts, ...position }: Row): UsageRecord {
  return { ...position, ...(JSON.parse(facts) as object) } as UsageRecord
}
