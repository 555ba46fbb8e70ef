/** Lists of tasks, newest first, with cursor pagination. */
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { recordsOf } from '../../src/tasks/read-tasks.ts'
import { publicStatus, STATES, type PublicStatus } from '../../src/tasks/public-record.ts'
import type { Task } from '../../src/domain/task.ts'
import { invalid } from '../../src/domain/request-validation.ts'

type ListQuery = {
  limit: number
  cursor?: string
  status?: PublicStatus
  kind?: string
  operation?: string
  created_after?: string
  created_before?: string
}

/**
 * One page: `{object: "list", data, has_more, next_cursor}`. The cursor is the id of the last task of a page, so that new tasks do not shift pages.
 * Throws `invalid_request` for a cursor that no list returned.
 */
export async function listTasks(
  context: TaskContext,
  tenant: string,
  object: Task['object'],
  query: ListQuery,
): Promise<Record<string, unknown>> {
  const filter = {
    object,
    verb: query.kind ?? query.operation ?? null,
    states: query.status ? STATES[query.status] : null,
    createdAfter: query.created_after === undefined ? null : Date.parse(query.created_after),
    createdBefore: query.created_before === undefined ? null : Date.parse(query.created_before),
  }
  const found: Task[] = []
  let before = query.cursor === undefined ? null : readCursor(query.cursor)
  let exhausted = false
  // A stored state belongs to two public statuses at most, so that a page may take more than one read.
  while (found.length <= query.limit && !exhausted) {
    const page = await context.store.tasks(tenant, filter, before, query.limit + 1)
    found.push(...page.filter((task) => query.status === undefined || publicStatus(task) === query.status))
    exhausted = page.length <= query.limit
    before = page.at(-1)?.id ?? before
  }
  const shown = found.slice(0, query.limit)
  const last = found.length > query.limit ? shown.at(-1) : undefined
  return { object: 'list', data: await recordsOf(context, shown), has_more: last !== undefined, next_cursor: last ? writeCursor(last.id) : null }
}

function writeCursor(id: string): string {
  return Buffer.from(id).toString('base64url')
}

function readCursor(cursor: string): string {
  const id = Buffer.from(cursor, 'base64url').toString()
  if (/^[0-9a-f-]{36}$/.test(id) && writeCursor(id) === cursor) return id
  throw invalid([{ path: '/cursor', code: 'format', message: 'must be the next_cursor of an earlier page' }])
}
