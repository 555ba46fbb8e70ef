/** Subscriptions in SQLite: the record as JSON, and beside it what it is looked up by. */
import type { Subscription } from '../../subscription/subscription.ts'
import type { Side } from '../changes.ts'
import type { Store } from '../store.ts'
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
`

type Row = { version: number; record: string }

export function openSubscriptions(database: Database): { side: Side; verbs: Pick<Store, 'subscription' | 'subscriptionsWith'> } {
  const find = database.prepare<Row>('SELECT version, record FROM subscriptions WHERE id = ?')
  const insert = database.prepare(
    `INSERT INTO subscriptions (version, has_plan, has_reservations, has_holds, has_past, record, id) VALUES (?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT DO NOTHING`,
  )
  const update = database.prepare(
    `UPDATE subscriptions SET version = ?, has_plan = ?, has_reservations = ?, has_holds = ?, has_past = ?, record = ?
     WHERE id = ? AND version = ?`,
  )
  const listing = (column: string) =>
    database.prepare<Row>(`SELECT version, record FROM subscriptions WHERE ${column} = 1 AND id > ? ORDER BY id LIMIT ?`)
  const listings = {
    plan: listing('has_plan'),
    reservations: listing('has_reservations'),
    holds: listing('has_holds'),
    past: listing('has_past'),
  }

  const side: Side = {
    read: (id, known) =>
      database.read(() => {
        const row = find.get(id)
        if (!row) return null
        return row.version === known ? 'unchanged' : parse(row)
      }),
    replace: async (record, expected) => {
      const columns = [record.version, ...flags(record), JSON.stringify(record), record.id]
      const changed = await database.write(() => (expected === 0 ? insert.run(...columns) : update.run(...columns, expected)))
      return changed === 1 ? 'replaced' : 'conflict'
    },
  }
  return {
    side,
    verbs: {
      subscription: (id) =>
        database.read(() => {
          const row = find.get(id)
          return row ? parse(row) : null
        }),
      subscriptionsWith: (what, after, limit) => database.read(() => listings[what].all(after, limit).map(parse)),
    },
  }
}

function parse(row: Row): Subscription {
  return JSON.parse(row.record) as Subscription
}

/** `has_plan`, `has_reservations`, `has_holds` and `has_past`. */
function flags({ plan, coding, media }: Subscription): number[] {
  const reserves = Object.keys(coding?.reservations ?? {}).length > 0
  const holds = Object.keys(media?.holds ?? {}).length > 0
  return [plan !== null, reserves, holds, (media?.past.length ?? 0) > 0].map(Number)
}
