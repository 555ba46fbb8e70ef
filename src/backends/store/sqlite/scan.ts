/** Reading of everything that the SQLite store keeps, in the order of the primary keys or of a unique index. */
import type { Kept, Store } from '../store.ts'
import type { Database } from './database.ts'
import { HOLDS, recordOf, type RecordRow } from './subscription-holds.ts'

type Row = RecordRow & { id: string; position: number }

const COLUMNS = 'SELECT id, record, NULL AS holds, 0 AS position FROM'
const AFTER = 'WHERE id > ? ORDER BY id LIMIT ?'

/** A page as plain data: records of subscriptions as rows. */
export type ScanRows = {
  scanRows(what: keyof Kept, after: string | null, limit: number): Promise<{ found: object[]; next: string | null }>
}

export function openScanRows(database: Database): ScanRows {
  const period = database.prepare<{ subscription: string; n: number; period: string }>(
    'SELECT * FROM periods WHERE (subscription, n) > (?, ?) ORDER BY subscription, n LIMIT ?',
  )
  const pages = {
    subscriptions: database.prepare<Row>(`SELECT id, record, ${HOLDS}, 0 AS position FROM subscriptions ${AFTER}`),
    keys: database.prepare<Row>(`${COLUMNS} keys ${AFTER}`),
    tasks: database.prepare<Row>(`${COLUMNS} tasks ${AFTER}`),
    deliveries: database.prepare<Row>(`${COLUMNS} deliveries ${AFTER}`),
    events: database.prepare<Row>(`SELECT id, record, NULL AS holds, position FROM events ${AFTER}`),
  }

  const periods = async (after: string | null, limit: number) => {
    const [subscription, n] = after === null ? ['', -1] : (JSON.parse(after) as [string, number])
    const rows = await database.read(() => period.all(subscription, n, limit))
    const last = rows.length < limit ? undefined : rows.at(-1)
    return {
      found: rows.map((row) => ({ ...JSON.parse(row.period), subscription: row.subscription })),
      next: last ? JSON.stringify([last.subscription, last.n]) : null,
    }
  }

  return {
    async scanRows(what, after, limit) {
      if (what === 'periods') return periods(after, limit)
      const rows = await database.read(() => pages[what].all(after ?? '', limit))
      const found = rows.map(({ record, holds, position }): object =>
        what === 'subscriptions' ? { record, holds } : { ...JSON.parse(record), ...(what === 'events' && { position }) },
      )
      return { found, next: rows.length < limit ? null : (rows.at(-1)?.id ?? null) }
    },
  }
}

/** `Store.scan` over rows: decodes the records of subscriptions. */
export function scanning({ scanRows }: ScanRows): Store['scan'] {
  return async <K extends keyof Kept>(what: K, after: string | null, limit: number) => {
    const { found, next } = await scanRows(what, after, limit)
    const decoded = what === 'subscriptions' ? found.map((row) => recordOf(row as RecordRow)) : found
    return { found: decoded as Kept[K][], next }
  }
}
