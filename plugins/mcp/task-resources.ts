/** Tasks as MCP resources: `task://{id}` is the record as JSON. */
import { ProtocolError, ProtocolErrorCode, ResourceNotFoundError, type Server } from '@modelcontextprotocol/server'
import type { Failure } from '../../src/domain/errors.ts'
import { listTasks } from '../../src/tasks/list-tasks.ts'
import { findTask, recordOf } from '../../src/tasks/read-tasks.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'

const SCHEME = 'task://'
const mimeType = 'application/json'
const TEMPLATE = {
  uriTemplate: `${SCHEME}{id}`,
  name: 'task',
  title: 'A task',
  description: 'The record of a task, as get_task returns it.',
  mimeType,
}
const PAGE = 50

/** Serves the resources of a tenant: its tasks, newest first, in pages. `failureOf` is the public failure of a thrown error. */
export function serveTaskResources(server: Server, tasks: TaskContext, tenant: string, failureOf: (error: unknown) => Failure): void {
  server.setRequestHandler('resources/templates/list', () => ({ resourceTemplates: [TEMPLATE] }))

  server.setRequestHandler('resources/list', async ({ params }) => {
    const cursor = params?.cursor
    const page = await listTasks(tasks, tenant, null, { limit: PAGE, ...(cursor === undefined ? {} : { cursor }) }).catch(refuse)
    const nextCursor = page['next_cursor']
    return { resources: (page['data'] as Listed[]).map(listed), ...(typeof nextCursor === 'string' ? { nextCursor } : {}) }
  })

  server.setRequestHandler('resources/read', async ({ params: { uri } }) => {
    const task = uri.startsWith(SCHEME)
      ? await findTask(tasks, tenant, uri.slice(SCHEME.length)).catch((error: unknown) => refuse(error, uri))
      : refuse(null, uri)
    return { contents: [{ uri, mimeType, text: JSON.stringify(await recordOf(tasks, task).catch(refuse)) }] }
  })

  /** A failure as an error of the protocol. `uri`: of the resource that is not there. */
  function refuse(error: unknown, uri?: string): never {
    const failure = error === null ? null : failureOf(error)
    if (uri !== undefined && (failure === null || failure.code === 'not_found')) throw new ResourceNotFoundError(uri)
    throw new ProtocolError(
      failure?.code === 'invalid_request' ? ProtocolErrorCode.InvalidParams : ProtocolErrorCode.InternalError,
      failure?.message ?? '',
      { code: failure?.code },
    )
  }
}

type Listed = { id: string; status: string; kind?: string; operation?: string; created_at: string }

function listed({ id, status, kind, operation, created_at }: Listed) {
  return { uri: `${SCHEME}${id}`, name: id, title: `${kind ?? operation}, ${status}, ${created_at}`, mimeType }
}
