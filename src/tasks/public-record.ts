/** The public record of a task: creation, retrieval and lists return it (`docs/media.md`, "The record"). */
import { Type } from 'typebox'
import { iso } from '../domain/iso-time.ts'
import { KINDS } from '../domain/media-generations.ts'
import { formatMoney } from '../domain/money.ts'
import { OPERATIONS } from '../domain/media-operations.ts'
import {
  durationSeconds,
  publicError,
  resultsOf,
  STATUSES,
  type PublicStatus,
  type Task,
  type TaskResult,
  type TaskState,
} from '../domain/task.ts'

/** As branches of one type each: some clients of MCP take no list of types. */
export const orNull = (type: string, description: string, more: object = {}) =>
  Type.Union([Type.Unsafe({ type, ...more }), Type.Null()], { description })
const timeOrNull = (description: string) => orNull('string', description, { format: 'date-time' })

/** `result` of the record. */
export const Result = Type.Object({
  image_url: Type.Optional(Type.String({ description: 'Signed address of the image.' })),
  video_url: Type.Optional(Type.String({ description: 'Signed address of the video.' })),
  audio_url: Type.Optional(Type.String({ description: 'Signed address of the music.' })),
  content_type: Type.String(),
  bytes: Type.Integer(),
  width: orNull('integer', 'Pixels.'),
  height: orNull('integer', 'Pixels.'),
  duration_ms: orNull('integer', 'Length of a video or of music.'),
  expires_at: Type.String({ format: 'date-time', description: 'The address serves until then.' }),
  // Open, as `error` is.
  images: Type.Optional(Type.Array(Type.Object({}), { description: 'All images, this one first, where several were made.' })),
})

/** What `publicRecord` returns. */
export const TaskRecord = Type.Object({
  id: Type.String({ description: 'UUID v7; the task_id of webhooks.' }),
  object: Type.Enum(['generation', 'operation']),
  kind: Type.Optional(Type.Enum([...KINDS], { description: 'Of a generation.' })),
  prompt: Type.Optional(orNull('string', 'Of a generation.')),
  operation: Type.Optional(Type.Enum([...OPERATIONS], { description: 'Of an operation.' })),
  input: Type.Optional(
    Type.Object(
      {},
      { additionalProperties: true, description: 'Of an operation: its parameters with their defaults; a data: URL as its type and size.' },
    ),
  ),
  status: Type.Enum([...STATUSES]),
  progress: Type.Integer({ minimum: 0, maximum: 100, description: 'Percent; never goes down; 100 when completed.' }),
  queue_position: orNull('integer', '1 for the next; null once processing.'),
  result: Type.Union([Result, Type.Null()], { description: 'Null until completed.' }),
  // Open: with `details` where they are known. Their schema would stand in every tool of MCP.
  error: Type.Union([Type.Object({ code: Type.String(), message: Type.String() }), Type.Null()], {
    description: 'Why it failed.',
  }),
  estimated_cost: Type.String({ description: 'The amount held for it, a decimal string.' }),
  actual_cost: orNull('string', 'The charge, once it ended.'),
  refund_amount: orNull('string', 'The part of the estimate that was given back.'),
  attempts: Type.Integer({ description: 'Runs begun and not handed back.' }),
  duration_seconds: orNull('integer', 'Processing time.'),
  webhook_url: orNull('string', 'Where its events are delivered.'),
  metadata: Type.Record(Type.String(), Type.String()),
  created_at: Type.String({ format: 'date-time' }),
  started_at: timeOrNull('Beginning of the first run.'),
  completed_at: timeOrNull('Set when completed.'),
  failed_at: timeOrNull('Set when failed.'),
  canceled_at: timeOrNull('Set when canceled.'),
})

/** To clients, a task that waits for another attempt or settles is `processing`. */
export function publicStatus(task: Pick<Task, 'state' | 'startedAt'>): PublicStatus {
  if (task.state === 'settling') return 'processing'
  if (task.state === 'pending' || task.state === 'rejected') return 'queued'
  return task.state === 'queued' && task.startedAt !== null ? 'processing' : task.state
}

const URL_FIELDS: Record<string, string> = { image: 'image_url', video: 'video_url', audio: 'audio_url' }

/** `result` of the record and of task.completed: the address, named by media type, and the facts. */
export function publicResult(first: TaskResult, link: (result: TaskResult) => string): Record<string, unknown> {
  const [one, ...more] = resultsOf(first).map((result) => publicMedium(result, link(result)))
  return { ...one, ...(more.length > 0 && { images: [one, ...more] }) }
}

function publicMedium(result: TaskResult, link: string): Record<string, unknown> {
  const field = URL_FIELDS[result.contentType.split('/', 1)[0] ?? ''] ?? 'image_url'
  return {
    [field]: link,
    content_type: result.contentType,
    bytes: result.bytes,
    width: result.width,
    height: result.height,
    duration_ms: result.durationMs,
    expires_at: iso(result.expiresAt),
  }
}

/** The whole record. `queuePosition` is 1 for the next one, null once processing. */
export function publicRecord(task: Task, queuePosition: number | null, link: (result: TaskResult) => string): Record<string, unknown> {
  const status = publicStatus(task)
  const { outcome } = task
  const ended = (state: TaskState) => (task.state === state ? iso(task.endedAt) : null)
  return {
    id: task.id,
    object: task.object,
    ...(task.object === 'generation'
      ? { kind: task.kind, prompt: task.input['prompt'] ?? null }
      : { operation: task.kind, input: task.input }),
    status,
    progress: task.state === 'completed' ? 100 : Math.min(task.progress, 99),
    queue_position: status === 'queued' ? queuePosition : null,
    result: task.state === 'completed' && outcome?.outcome === 'completed' ? publicResult(outcome.result, link) : null,
    error: task.state === 'failed' && outcome?.outcome === 'failed' ? publicError(outcome) : null,
    estimated_cost: formatMoney(task.estimatedCost),
    actual_cost: money(task.actualCost),
    refund_amount: task.state === 'completed' && task.refundAmount === 0 ? null : money(task.refundAmount),
    attempts: task.attempts,
    duration_seconds: durationSeconds(task),
    webhook_url: task.webhookUrl,
    metadata: task.metadata,
    created_at: iso(task.createdAt),
    started_at: iso(task.startedAt),
    completed_at: ended('completed'),
    failed_at: ended('failed'),
    canceled_at: ended('canceled'),
  }
}

function money(micro: number | null): string | null {
  return micro === null ? null : formatMoney(micro)
}
