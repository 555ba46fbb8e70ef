/** Dashboard sessions in MongoDB, and values that may be used once. */
import type { Session } from '../../../domain/sessions.ts'
import type { Store } from '../store.ts'
import { add, fromStored, toStored, type Database, type Stored } from './database.ts'
import type { Indexes } from './indexes.ts'

export const sessionIndexes = {
  // openSession, useOnce: what has expired
  sessions: [{ name: 'expired', key: { expiresAt: 1 } }],
  used_once: [{ name: 'until', key: { until: 1 } }],
} satisfies Indexes

export function openSessions(database: Database): Pick<Store, 'openSession' | 'session' | 'switchTenant' | 'endSession' | 'useOnce'> {
  const sessions = database.collection<Stored<Session>>('sessions')
  const used = database.collection<{ _id: string; until: number }>('used_once')
  const entityOrNull = (found: Stored<Session> | null) => (found ? fromStored<Session>(found) : null)

  return {
    openSession: async (session, now) => {
      await sessions.deleteMany({ expiresAt: { $lte: now } })
      await add(sessions, toStored(session))
    },
    session: async (id) => entityOrNull(await sessions.findOne({ _id: id })),
    switchTenant: async (id, tenant) =>
      entityOrNull(await sessions.findOneAndUpdate({ _id: id }, { $set: { tenant } }, { returnDocument: 'after' })),
    endSession: async (id) => void (await sessions.deleteOne({ _id: id })),
    useOnce: async (hash, until, now) => {
      await used.deleteMany({ until: { $lte: now } })
      return (await add(used, { _id: hash, until })) === 'added'
    },
  }
}
