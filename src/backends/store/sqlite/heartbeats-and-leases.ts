/** Heartbeats of processes and leases in SQLite. */
import { MAX_SKEW_MS } from '../../../domain/subscription/clock-healing.ts'
import type { Store } from '../store.ts'
import type { Database } from './database.ts'

export const processTables = `
  CREATE TABLE beats (instance TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
  CREATE TABLE leases (name TEXT PRIMARY KEY, owner TEXT NOT NULL, until INTEGER NOT NULL) STRICT;
`

export function openHeartbeatsAndLeases(
  database: Database,
): Pick<Store, 'heartbeat' | 'heartbeats' | 'forgetInstance' | 'takeLease' | 'releaseLease'> {
  // A late heartbeat must not count as a change.
  const beat = database.prepare(
    'INSERT INTO beats VALUES (?, ?) ON CONFLICT (instance) DO UPDATE SET count = excluded.count WHERE excluded.count > count',
  )
  const beats = database.prepare<{ instance: string; count: number }>('SELECT instance, count FROM beats ORDER BY instance')
  const forget = database.prepare('DELETE FROM beats WHERE instance = ?')
  const lease = database.prepare(
    `INSERT INTO leases VALUES (?, ?, ?)
     ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
     WHERE owner = excluded.owner OR until <= ? OR until > excluded.until + ${MAX_SKEW_MS}`,
  )
  const release = database.prepare('DELETE FROM leases WHERE name = ? AND owner = ?')

  return {
    heartbeat: async (instance, count) => void (await database.write(() => beat.run(instance, count))),
    heartbeats: () => database.read(() => beats.all().map(({ instance, count }) => ({ instance, count }))),
    forgetInstance: async (instance) => void (await database.write(() => forget.run(instance))),
    takeLease: (name, owner, until, now) => database.write(() => lease.run(name, owner, until, now) === 1),
    releaseLease: async (name, owner) => void (await database.write(() => release.run(name, owner))),
  }
}
