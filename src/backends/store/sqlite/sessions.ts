/** Dashboard sessions in SQLite, and values that may be used once. */
import type { Session } from '../../../domain/sessions.ts'
import type { Store } from '../store.ts'
import type { Database } from './database.ts'

/** Migration that adds sessions. */
export const sessionTables = `
  CREATE TABLE sessions (id TEXT PRIMARY KEY, expires_at INTEGER NOT NULL, record TEXT NOT NULL) STRICT;
  CREATE INDEX sessions_expired ON sessions (expires_at);
  CREATE TABLE used_once (hash TEXT PRIMARY KEY, until INTEGER NOT NULL) STRICT;
  CREATE INDEX used_once_until ON used_once (until);
`

export function openSessions(database: Database): Pick<Store, 'openSession' | 'session' | 'switchTenant' | 'endSession' | 'useOnce'> {
  const insert = database.prepare('INSERT INTO sessions VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING')
  const expire = database.prepare('DELETE FROM sessions WHERE expires_at <= ?')
  const byId = database.records<Session>('SELECT record FROM sessions WHERE id = ?')
  const update = database.prepare('UPDATE sessions SET record = ? WHERE id = ?')
  const remove = database.prepare('DELETE FROM sessions WHERE id = ?')
  const use = database.prepare('INSERT INTO used_once VALUES (?, ?) ON CONFLICT (hash) DO NOTHING')
  const forget = database.prepare('DELETE FROM used_once WHERE until <= ?')

  return {
    openSession: async (session, now) => {
      await database.write(() => {
        expire.run(now)
        insert.run(session.id, session.expiresAt, JSON.stringify(session))
      })
    },
    session: (id) => database.read(() => byId.get(id)),
    switchTenant: (id, tenant) =>
      database.write(() => {
        const session = byId.get(id)
        if (!session) return null
        const next = { ...session, tenant }
        update.run(JSON.stringify(next), id)
        return next
      }),
    endSession: async (id) => void (await database.write(() => remove.run(id))),
    useOnce: (hash, until, now) =>
      database.write(() => {
        forget.run(now)
        return use.run(hash, until) === 1
      }),
  }
}
