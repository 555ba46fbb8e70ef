/** `GET /events`: the tenant's event log, oldest first (`docs/webhooks.md`, "The event log"). */
import type { Static } from 'typebox'
import type { LoggedEvent } from '../../src/domain/task.ts'
import { readCursor, writeCursor } from '../../src/domain/page-cursors.ts'
import { readPage } from '../../src/tasks/read-page.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import type { EventsQuery } from './request-schemas.ts'

/**
 * One page: `{object: "list", data, has_more, next_cursor}`. `next_cursor` is never null: it leads to what is logged later as well.
 * `keepMs`: retention. Throws `invalid_request` for a cursor that was not given before.
 */
export async function listEvents(
  { store, clock }: Pick<TaskContext, 'store' | 'clock'>,
  tenant: string,
  { limit, cursor }: Static<typeof EventsQuery>,
  keepMs: number,
): Promise<Record<string, unknown>> {
  const after = cursor === undefined ? 0 : Number(readCursor(cursor, /^event (0|[1-9]\d{0,14})$/, 'query parameter')[0])
  const since = clock() - keepMs
  const { rows, isMore } = await readPage<LoggedEvent & { position: number }>(limit, (last, count) =>
    store.events(tenant, last?.position ?? after, since, count),
  )
  return {
    object: 'list',
    data: rows.map(publicEvent),
    has_more: isMore,
    next_cursor: writeCursor(`event ${rows.at(-1)?.position ?? after}`),
  }
}

function publicEvent({ id, event, taskId, body }: LoggedEvent): Record<string, unknown> {
  const { timestamp, data } = JSON.parse(body) as { timestamp: string; data: object }
  return { id, object: 'event', type: event, task_id: taskId, created_at: timestamp, data }
}
