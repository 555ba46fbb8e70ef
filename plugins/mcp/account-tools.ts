/** The MCP tools that read and cancel tasks, and read the usage. */
import type { ToolAnnotations } from '@modelcontextprotocol/server'
import { Type } from 'typebox'
import { KINDS } from '../../src/domain/media-generations.ts'
import { OPERATIONS } from '../../src/domain/media-operations.ts'
import { invalid } from '../../src/domain/request-validation.ts'
import { LIST_FIELDS, listTasks, type ListQuery } from '../../src/tasks/list-tasks.ts'
import { MediaUsage, mediaUsage } from '../../src/tasks/media-usage.ts'
import { orNull, TaskRecord } from '../../src/tasks/public-record.ts'
import { findTask } from '../../src/tasks/read-tasks.ts'
import { cancel } from '../../src/tasks/run-outcome.ts'
import type { SubmitContext } from '../../src/tasks/submit.ts'
import { closed, TaskAnswer, waitSeconds, type Tool } from './tool.ts'

const task_id = Type.String({ minLength: 1, maxLength: 100, description: 'The id of the task: `id` of its record.' })

const TaskList = Type.Object({
  object: Type.Literal('list'),
  data: Type.Array(TaskAnswer),
  has_more: Type.Boolean(),
  next_cursor: orNull('string', 'The cursor of the next page; null on the last.'),
})

const ListTasks = Type.Object(
  {
    kind: Type.Optional(Type.Enum([...KINDS], { description: 'Only generations of this kind.' })),
    operation: Type.Optional(Type.Enum([...OPERATIONS], { description: 'Only tasks of this operation.' })),
    ...LIST_FIELDS,
    limit: Type.Optional(LIST_FIELDS.limit),
  },
  closed,
)

const reads: ToolAnnotations = { readOnlyHint: true, openWorldHint: false }

/** The tools `get_task`, `list_tasks`, `cancel_task` and `get_usage`. Their failures are those of the REST API. */
export function accountTools(tasks: SubmitContext): Tool[] {
  return [
    {
      name: 'get_task',
      title: 'Get a task',
      description:
        'Reads one task by its id: status, progress, cost, error, and its media once it is completed. Use wait_seconds instead of calling it in a loop.',
      annotations: reads,
      input: Type.Object({ task_id, wait_seconds: waitSeconds }, closed),
      output: TaskRecord,
      creates: false,
      call: async ({ task_id: id, wait_seconds: seconds }, { key }) => ({
        task: await findTask(tasks, key.tenant, String(id)),
        waitSeconds: Number(seconds),
      }),
    },
    {
      name: 'list_tasks',
      title: 'List tasks',
      description:
        'Lists the tasks of the account, newest first, with their records: what was made, what is running, what failed. Give kind or operation, status or times to narrow it. For one task of a known id, use get_task.',
      annotations: reads,
      input: ListTasks,
      output: TaskList,
      creates: false,
      async call(args, { key }) {
        const query = args as ListQuery
        if (query.kind !== undefined && query.operation !== undefined)
          throw invalid([{ path: '/operation', code: 'not_allowed', message: 'cannot be given together with kind' }])
        const object = query.kind !== undefined ? 'generation' : query.operation !== undefined ? 'operation' : null
        return { record: await listTasks(tasks, key.tenant, object, query) }
      },
    },
    {
      name: 'cancel_task',
      title: 'Cancel a task',
      description:
        'Ends a task that is queued or processing. What was held is available again. It costs nothing before its run has begun, and after that what actual_cost says. A task that has ended already cannot be canceled.',
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
      input: Type.Object({ task_id }, closed),
      output: TaskAnswer,
      creates: false,
      call: async ({ task_id: id }, { key }) => ({
        task: await cancel(tasks, await findTask(tasks, key.tenant, String(id))),
        waitSeconds: 0,
      }),
    },
    {
      name: 'get_usage',
      title: 'Get the usage',
      description:
        'Reads the money of the running period: what the plan granted, what is available for new tasks, held for open ones, and charged, by day and by kind or operation.',
      annotations: reads,
      input: Type.Object({}, closed),
      output: MediaUsage,
      creates: false,
      call: async (_args, { key }) => ({ record: mediaUsage(await tasks.store.subscription(key.subscription), key, tasks.clock()) }),
    },
  ]
}
