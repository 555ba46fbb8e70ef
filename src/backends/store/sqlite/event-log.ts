/** Event log of each tenant in SQLite. One transaction at a time writes, so positions are taken in the order in which readers see them. */
import type { LoggedEvent } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import type { Database } from './database.ts'

export const eventTables = `
  CREATE TABLE events (
    tenant TEXT NOT NULL,
    position INTEGER NOT NULL,
    id TEXT NOT NULL UNIQUE,
    logged_at INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (tenant, position)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX events_logged ON events (logged_at);

  -- The highest position of a tenant whose event was removed.
  CREATE TABLE event_floors (
    tenant TEXT PRIMARY KEY,
    position INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
`

type Position = { position: number }

/** What the relay of a task needs, inside its write. */
export type EventLog = {
  /** Those that are there stay as they are. */
  append(events: LoggedEvent[]): void
}

export function openEventLog(database: Database): { log: EventLog; verbs: Pick<Store, 'events' | 'removeEvents' | 'raiseEventFloor'> } {
  const known = database.prepare('SELECT 1 FROM events WHERE id = ?')
  const last = database.prepare<Position>('SELECT position FROM events WHERE tenant = ? ORDER BY position DESC LIMIT 1')
  // That of '' is for all tenants.
  const floor = database.prepare<Position>("SELECT max(position) AS position FROM event_floors WHERE tenant IN (?, '')")
  const insert = database.prepare('INSERT INTO events (tenant, position, id, logged_at, record) VALUES (?, ?, ?, ?, ?)')
  const page = database.prepare<{ position: number; record: string }>(
    'SELECT position, record FROM events WHERE tenant = ? AND position > ? AND logged_at >= ? ORDER BY position LIMIT ?',
  )
  const old = database.prepare<{ tenant: string; position: number }>(
    'SELECT tenant, position FROM events WHERE logged_at < ? ORDER BY logged_at LIMIT ?',
  )
  const raise = database.prepare(
    'INSERT INTO event_floors VALUES (?, ?) ON CONFLICT DO UPDATE SET position = excluded.position WHERE position < excluded.position',
  )
  const remove = database.prepare('DELETE FROM events WHERE tenant = ? AND position = ?')

  return {
    log: {
      append: (events) => {
        for (const event of events.filter(({ id }) => !known.get(id))) {
          const position = Math.max(last.get(event.tenant)?.position ?? 0, floor.get(event.tenant)?.position ?? 0) + 1
          insert.run(event.tenant, position, event.id, event.loggedAt, JSON.stringify(event))
        }
      },
    },
    verbs: {
      events: (tenant, after, since, limit) =>
        database.read(() =>
          page.all(tenant, after, since, limit).map(({ position, record }) => ({ ...(JSON.parse(record) as LoggedEvent), position })),
        ),
      removeEvents: (before, limit) =>
        database.write(() => {
          const removed = old.all(before, limit)
          for (const { tenant, position } of removed) {
            raise.run(tenant, position)
            remove.run(tenant, position)
          }
          return removed.length
        }),
      raiseEventFloor: async (position) => void (await database.write(() => raise.run('', position))),
    },
  }
}
