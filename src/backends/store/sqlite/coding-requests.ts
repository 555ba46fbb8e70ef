/** The newest coding requests of each plan in SQLite. */
import { type CodingRequest, KEPT_REQUESTS } from '../../../domain/coding-requests.ts'
import type { Store } from '../store.ts'
import type { Database } from './database.ts'

/** Migration that adds coding requests. */
export const codingRequestTables = `
  CREATE TABLE coding_requests (
    subscription TEXT NOT NULL,
    at INTEGER NOT NULL,
    id TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (subscription, at, id)
  ) STRICT, WITHOUT ROWID;
`

/** Migration that finds old ones. */
export const codingRequestTimes = 'CREATE INDEX coding_requests_at ON coding_requests (at);'

export function openCodingRequests(database: Database): Pick<Store, 'logRequests' | 'requests' | 'removeRequests' | 'requestsBefore'> {
  const insert = database.prepare('INSERT INTO coding_requests VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING')
  const trim = database.prepare(`
    DELETE FROM coding_requests WHERE subscription = ?1 AND (at, id) <= (
      SELECT at, id FROM coding_requests WHERE subscription = ?1 ORDER BY at DESC, id DESC LIMIT 1 OFFSET ${KEPT_REQUESTS}
    )`)
  const page = database.records<CodingRequest>(
    'SELECT record FROM coding_requests WHERE subscription = ? AND (at, id) < (?, ?) ORDER BY at DESC, id DESC LIMIT ?',
  )
  const remove = database.prepare(
    'DELETE FROM coding_requests WHERE (subscription, at, id) IN (SELECT subscription, at, id FROM coding_requests WHERE at < ? LIMIT ?)',
  )
  const old = database.prepare<{ count: number }>('SELECT count(*) AS count FROM coding_requests WHERE at < ?')
  return {
    logRequests: async (requests) =>
      void (await database.write(() => {
        for (const request of requests) insert.run(request.subscription, request.at, request.id, JSON.stringify(request))
        for (const subscription of new Set(requests.map((request) => request.subscription))) trim.run(subscription)
      })),
    requests: (subscription, before, limit) =>
      database.read(() => page.all(subscription, before?.at ?? Number.MAX_SAFE_INTEGER, before?.id ?? '', limit)),
    removeRequests: (before, limit) => database.write(() => remove.run(before, limit)),
    requestsBefore: (before) => database.read(() => old.get(before)?.count ?? 0),
  }
}
