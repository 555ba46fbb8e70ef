/** `tollgate usage export`: the usage records of a time range, of one tenant or all, as text. */
import type { Store } from '../backends/store/store.ts'
import { tenantOf } from '../domain/plans.ts'
import { USAGE_COLUMNS, usageCells, usageEvent } from '../domain/usage-events.ts'
import type { UsageRange, UsageRecord } from '../domain/usage-records.ts'
import { readAll, readUsage } from '../tasks/paged-reads.ts'

export const FORMATS = ['ndjson', 'csv'] as const
export type Format = (typeof FORMATS)[number]

/**
 * The text in parts, by plan and then by time: a CloudEvent a line, or CSV (RFC 4180) with a header. What is charged meanwhile may be missing. `tenant` null: of all. Throws
 * `Unavailable`.
 */
export async function* exportUsage(
  store: Store,
  { tenant, range, format }: { tenant: string | null; range: UsageRange; format: Format },
): AsyncGenerator<string> {
  if (format === 'csv') yield `${USAGE_COLUMNS.join(',')}\r\n`
  for await (const { id } of readAll(store, 'subscriptions')) {
    if (tenant !== null && tenantOf(id) !== tenant) continue
    for await (const page of readUsage(store, id, range)) yield page.map(LINES[format]).join('')
  }
}

const LINES: Record<Format, (record: UsageRecord) => string> = {
  ndjson: (record) => `${JSON.stringify(usageEvent(record))}\n`,
  csv: (record) => `${usageCells(record).join(',')}\r\n`,
}
