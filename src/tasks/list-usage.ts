/** The list of a plan's usage records, oldest first, with cursor pagination (`docs/usage-records.md`). */
import { Type, type Static } from 'typebox'
import type { Store } from '../backends/store/store.ts'
import { readCursor, writeCursor } from '../domain/page-cursors.ts'
import { usageEvent } from '../domain/usage-events.ts'
import type { UsagePosition } from '../domain/usage-records.ts'

/** The query of a request for one page. */
export const UsageQuery = Type.Object(
  {
    limit: Type.Integer({ minimum: 1, maximum: 500, default: 100 }),
    cursor: Type.Optional(Type.String({ minLength: 1, maxLength: 200, description: 'The next_cursor of the page before.' })),
    since: Type.Optional(Type.String({ format: 'date-time', description: 'Charges at this time or later.' })),
    until: Type.Optional(Type.String({ format: 'date-time', description: 'Charges before this time.' })),
  },
  { additionalProperties: false },
)

/** Longer than a charge takes to be stored; a process that stands still for as long has lost its reservations and leases. */
const SETTLED_MS = 120_000

/**
 * One page: `{object: "list", data, has_more, next_cursor}` of CloudEvents. `next_cursor` leads to later charges as well; it is null before the first. Throws `invalid_request` for a
 * cursor that no list returned.
 */
export async function listUsage(
  store: Pick<Store, 'subscription' | 'usageRecords'>,
  subscription: string,
  { limit, cursor, since, until }: Static<typeof UsageQuery>,
  now: number,
): Promise<Record<string, unknown>> {
  const after = cursor === undefined ? null : positionOf(cursor)
  const record = await store.subscription(subscription)
  // Later charges have the time of the record or a later one: of the same millisecond, one might come with an id before the cursor.
  const before = record === null ? 0 : now - record.at < SETTLED_MS ? record.at : record.at + 1
  const range = {
    since: since === undefined ? 0 : Date.parse(since),
    until: Math.min(before, until === undefined ? Infinity : Date.parse(until)),
  }
  const found = await store.usageRecords(subscription, range, after, limit + 1)
  const shown = found.slice(0, limit)
  const last = shown.at(-1) ?? after
  const next = last && writeCursor(`usage ${last.at} ${last.id}`)
  return { object: 'list', data: shown.map(usageEvent), has_more: found.length > limit, next_cursor: next }
}

function positionOf(cursor: string): UsagePosition {
  const [at = '', id = ''] = readCursor(cursor, /^usage (0|[1-9]\d{0,14}) ([\w-]{1,128})$/, 'query parameter')
  return { at: Number(at), id }
}
