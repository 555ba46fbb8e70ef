/** `GET /events`: the tenant's event log, oldest first (`docs/webhooks.md`, "The event log"). */
import type { Static } from 'typebox'
import type { LoggedEvent } from '../../src/domain/task.ts'
import { invalid } from '../../src/domain/request-validation.ts'
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
  const after = cursor === undefined ? 0 : readCursor(cursor)
  const found = await store.events(tenant, after, clock() - keepMs, limit + 1)
  const shown = found.slice(0, limit)
  return {
    object: 'list',
    data: shown.map(publicEvent),
    has_more: found.length > limit,
    next_cursor: writeCursor(shown.at(-1)?.position ?? after),
  }
}

function publicEvent({ id, event, taskId, body }: LoggedEvent): Record<string, unknown> {
  const { timestamp, data } = JSON.parse(body) as { timestamp: string; data: object }
  return { id, object: 'event', type: event, task_id: taskId, created_at: timestamp, data }
}

function writeCursor(position: number): string {
  return Buffer.from(`event ${position}`).toString('base64url')
}

function readCursor(cursor: string): number {
  const [, position] = /^event (\d{1,15})$/.exec(Buffer.from(cursor, 'base64url').toString()) ?? []
  if (position !== undefined && writeCursor(Number(position)) === cursor) return Number(position)
  throw invalid([{ path: '/cursor', code: 'format', message: 'must be the next_cursor of an earlier page' }], 'query parameter')
}
