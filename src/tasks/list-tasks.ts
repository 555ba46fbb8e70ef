/** Lists of a tenant's tasks, newest first, with cursor pagination, for the Media API and for MCP. */
import { Type } from 'typebox'
import { readCursor, writeCursor } from '../domain/page-cursors.ts'
import { STATUSES, type PublicStatus, type Task, type TaskFilter } from '../domain/task.ts'
import { readPage } from './read-page.ts'
import { recordsOf } from './read-tasks.ts'
import type { TaskContext } from './task-context.ts'

/** The fields of a request for one page. */
export const PAGE_FIELDS = {
  limit: Type.Integer({ minimum: 1, maximum: 100, default: 20 }),
  cursor: Type.Optional(Type.String({ minLength: 1, maxLength: 200, description: 'The next_cursor of the page before.' })),
}

const dateTime = (description: string) => Type.Optional(Type.String({ format: 'date-time', description }))

/** The fields of a request for a list of tasks, beside the kind or operation. */
export const LIST_FIELDS = {
  ...PAGE_FIELDS,
  status: Type.Optional(Type.Enum([...STATUSES])),
  created_after: dateTime('Tasks created after this time, such as 2026-11-21T08:30:00Z.'),
  created_before: dateTime('Tasks created before this time.'),
}

export type ListQuery = {
  limit: number
  cursor?: string
  status?: PublicStatus
  kind?: string
  operation?: string
  created_after?: string
  created_before?: string
}

export type TaskPage = { object: 'list'; data: Record<string, unknown>[]; has_more: boolean; next_cursor: string | null }

/**
 * One page: `{object: "list", data, has_more, next_cursor}`. `object` is the collection; null for both. The cursor is the id of the last task of a page, so that new tasks do not shift pages.
 * Throws `invalid_request` for a cursor that no list returned.
 */
export async function listTasks(context: TaskContext, tenant: string, object: Task['object'] | null, query: ListQuery): Promise<TaskPage> {
  const filter = {
    kind: query.kind ?? query.operation ?? null,
    status: query.status ?? null,
    createdAfter: query.created_after === undefined ? null : Date.parse(query.created_after),
    createdBefore: query.created_before === undefined ? null : Date.parse(query.created_before),
  }
  const [before = null] = query.cursor === undefined ? [] : readCursor(query.cursor, /^([0-9a-f-]{36})$/)
  const { rows, isMore } = await readPage<Task>(query.limit, (last, count) =>
    newest(context, tenant, object, filter, last?.id ?? before, count),
  )
  const last = isMore ? rows.at(-1) : undefined
  return { object: 'list', data: await recordsOf(context, rows), has_more: isMore, next_cursor: last ? writeCursor(last.id) : null }
}

/** The newest tasks before an id, of one collection or both. */
async function newest(
  { store }: TaskContext,
  tenant: string,
  object: Task['object'] | null,
  filter: Omit<TaskFilter, 'object'>,
  before: string | null,
  limit: number,
): Promise<Task[]> {
  const collections = object === null ? (['generation', 'operation'] as const) : [object]
  const pages = await Promise.all(collections.map((one) => store.tasks(tenant, { ...filter, object: one }, before, limit)))
  // Ids are UUIDs of version 7: later ones are greater.
  return pages.length === 1
    ? pages.flat()
    : pages
        .flat()
        .sort((a, b) => (a.id < b.id ? 1 : -1))
        .slice(0, limit)
}
