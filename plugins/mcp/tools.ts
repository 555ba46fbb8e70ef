/** The MCP tools: each is a verb of the REST API, by the same code. */
import type { ContentBlock, ServerContext, ToolAnnotations } from '@modelcontextprotocol/server'
import type { FastifyInstance } from 'fastify'
import { Type } from 'typebox'
import { GENERATION_FIELDS } from '../../src/domain/media-generations.ts'
import { FIELD_PATTERNS } from '../../src/domain/field-patterns.ts'
import { findTask, recordOf } from '../../src/tasks/read-tasks.ts'
import { publicRecord, publicStatus, TaskRecord } from '../../src/tasks/public-record.ts'
import { TASK_FIELDS } from '../../src/tasks/request-fields.ts'
import type { TaskBody } from '../../src/tasks/quote.ts'
import { submit } from '../../src/tasks/submit.ts'
import type { Task } from '../../src/domain/task.ts'
import { MediaUsage, mediaUsage } from '../../src/tasks/media-usage.ts'
import { mediaContent } from './media-content.ts'
import type { RequestContext } from './request-context.ts'

type Answer = {
  /** The record of the REST API. */
  record: Record<string, unknown>
  /** Further content: the media itself, and links. */
  more: ContentBlock[]
}

export type Tool = {
  name: string
  title: string
  description: string
  annotations: ToolAnnotations
  /** JSON Schemas of the arguments and of the record. */
  input: object
  output: object
  /** It creates a paid task. */
  creates: boolean
  /** `args` passed the schema. Throws the failures of the REST API. */
  call(args: Record<string, unknown>, context: RequestContext, protocol: ServerContext): Promise<Answer>
}

const closed = { additionalProperties: false }
/** SDK clients give up after 60 seconds. */
const LONGEST_WAIT_SECONDS = 45

const waitSeconds = Type.Integer({
  minimum: 0,
  maximum: LONGEST_WAIT_SECONDS,
  default: 0,
  description: 'Seconds to wait for the end of the task. The record is returned then, whatever its status.',
})

const { prompt, size, aspect_ratio, seed, output_format } = GENERATION_FIELDS

const GenerateImage = Type.Object(
  {
    prompt,
    size,
    aspect_ratio,
    seed,
    output_format,
    ...TASK_FIELDS,
    idempotency_key: Type.Optional(Type.String({ pattern: FIELD_PATTERNS.idempotencyKey.pattern, description: 'The same key with the same arguments is the same task: use one to retry a call safely.' })),
    wait_seconds: Type.Optional(waitSeconds),
  },
  closed,
)

const GetTask = Type.Object({ task_id: Type.String({ minLength: 1, maxLength: 100, description: 'The id of a record.' }), wait_seconds: Type.Optional(waitSeconds) }, closed)

const reads: ToolAnnotations = { readOnlyHint: true, openWorldHint: false }
const creates: ToolAnnotations = { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: true }

export function mediaTools({ tasks, taskWatch, files, clock }: Pick<FastifyInstance, 'tasks' | 'taskWatch' | 'files' | 'clock'>): Tool[] {
  /** The record of a task, at once or at its end, with its media. */
  async function answer(task: Task, seconds: unknown, { caller, signal, request }: RequestContext, protocol: ServerContext): Promise<Answer> {
    const wait = { ms: Number(seconds ?? 0) * 1000, signal: AbortSignal.any([signal, protocol.mcpReq.signal]), changed: progressReporter(protocol) }
    const { task: latest } = await taskWatch.untilFinal(task, caller.key.keyId, wait)
    return { record: await recordOf(tasks, latest), more: await mediaContent({ files, link: tasks.link, log: request.log }, latest) }
  }

  return [
    {
      name: 'generate_image',
      title: 'Generate an image',
      description: 'Creates a paid task that makes one image from a prompt. The price is held at once and charged when the image is made; a task that fails costs nothing.',
      annotations: creates,
      input: GenerateImage,
      output: TaskRecord,
      creates: true,
      async call({ wait_seconds: seconds, idempotency_key: key, ...body }, context, protocol) {
        const { task } = await submit(tasks, context.caller, { kind: 'image', ...body } as TaskBody, typeof key === 'string' ? key : null)
        // The task is accepted: the client gets its record even if the store is unavailable from here on.
        return answer(task, seconds, context, protocol).catch(() => ({ record: publicRecord(task, null, tasks.link), more: [] }))
      },
    },
    {
      name: 'get_task',
      title: 'Get a task',
      description: 'The record of a task, and its media once it is completed.',
      annotations: reads,
      input: GetTask,
      output: TaskRecord,
      creates: false,
      call: async ({ task_id: id, wait_seconds: seconds }, context, protocol) => answer(await findTask(tasks, context.caller.key.tenant, String(id)), seconds, context, protocol),
    },
    {
      name: 'get_usage',
      title: 'Get the usage',
      description: 'The allowance of the running period: granted, held for tasks, charged and available.',
      annotations: reads,
      input: Type.Object({}, closed),
      output: MediaUsage,
      creates: false,
      call: async (_args, { caller }) => ({ record: mediaUsage(await tasks.store.subscription(caller.key.subscription), caller.key, clock()), more: [] }),
    },
  ]
}

/** Sends progress notifications to a client that gave a progress token, whenever the progress rises. */
function progressReporter({ mcpReq }: ServerContext): (task: Task) => void {
  const { _meta: meta } = mcpReq
  const progressToken = meta?.progressToken
  let reported = -1
  return (task) => {
    const progress = task.state === 'completed' ? 100 : Math.min(task.progress, 99)
    if (progressToken === undefined || progress <= reported) return
    reported = progress
    // The client may have left.
    void mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100, message: publicStatus(task) } }).catch(() => {})
  }
}
