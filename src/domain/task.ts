/** A task (one generation or operation): its states and its stored form. Times are epoch milliseconds, money is micro-units. */
import { planNameOf, type Price } from './plans.ts'
import type { WebhookEvent } from './webhooks.ts'

/**
 * pending → queued → processing → settling → completed | failed | canceled; processing → queued for another attempt; pending → rejected when its hold was
 * refused. `pending` and `rejected` are invisible to clients. `settling` has an outcome and a cost; its hold is not closed yet.
 */
export type TaskState = 'pending' | 'queued' | 'processing' | 'settling' | 'completed' | 'failed' | 'canceled' | 'rejected'

export const FINAL: readonly TaskState[] = ['completed', 'failed', 'canceled', 'rejected']

/** The codes of `error.code` on a failed task (`docs/media.md`). */
export const TASK_ERRORS = {
  provider_error: 'The media could not be made.',
  provider_timeout: 'Making the media took too long.',
  provider_rejected: 'The request was refused because of its content or input.',
  input_unreachable: 'The source media could not be fetched.',
  input_not_allowed: 'The address of the source media is not allowed.',
  input_too_large: 'The source media is too large.',
  unsupported_input: 'The source media cannot be read, or is of a kind that this operation does not take.',
  several_pictures: 'The source is an animation or has several pages. Only one picture of it would be kept. Send a single picture.',
  start_past_end: 'The section begins past the end of the source.',
  no_sound: 'The source has no audio, and the requested output format is audio only.',
  mixed_sources: 'Videos cannot be merged with audio files.',
  mask_mismatch: 'The aspect ratio of the mask differs from that of the picture.',
  result_too_large: 'The result would be larger than this service allows.',
  cannot_fill:
    'The marked area cannot be filled from its surroundings. Mark the whole object to remove without touching the edges of other objects, or mark a smaller area.',
  not_supported: 'The service no longer offers this kind or operation.',
  canceled: 'The task was canceled.',
  internal: 'Something went wrong on our side.',
} as const

export type TaskErrorCode = keyof typeof TASK_ERRORS

type ErrorFacts = {
  bytes?: number
  width?: number
  height?: number
  megapixels?: number
  seconds?: number
  content_type?: string
  pictures?: number
}
/** `error.details` of a failed task: which source it was, as a JSON Pointer into the body, what it was found to be, and the limit that it is above. */
export type TaskErrorDetails = { source?: string; found?: ErrorFacts; limit?: ErrorFacts }

export type TaskResult = {
  /** Id in the files backend: `taskId-epoch`. */
  file: string
  contentType: string
  bytes: number
  width: number | null
  height: number | null
  durationMs: number | null
  expiresAt: number
  /** The results of a task that made several, without the first. */
  others?: TaskResult[]
}

/** All results of a task by its first. */
export function resultsOf(first: TaskResult): TaskResult[] {
  return [first, ...(first.others ?? [])]
}

/** How a task ended and when, decided before its hold is closed; outcomes of earlier releases have no time. `cost` is the engine's; the charge is clamped to the hold. */
export type TaskOutcome = { at?: number } & (
  | { outcome: 'completed'; cost: number; result: TaskResult }
  | { outcome: 'failed'; code: TaskErrorCode; message: string; details?: TaskErrorDetails }
  /** `cost`, above zero: what a begun run costs though it was canceled. */
  | { outcome: 'canceled'; cost?: number }
)

/** An outbox event. `body` is the exact text that is signed and sent. */
export type OutboxEvent = { event: WebhookEvent; body: string }

/** An event of the tenant's log, with or without a webhook. */
export type LoggedEvent = {
  /** `taskId.event`, as the id of its delivery. */
  id: string
  tenant: string
  taskId: string
  event: WebhookEvent
  /** The envelope, exactly as a webhook sends it. */
  body: string
  /** When it was relayed; its retention counts from then. */
  loggedAt: number
}

export type Task = {
  /** UUID v7: the order of the ids is the order of creation. */
  id: string
  tenant: string
  subscription: string
  keyId: string
  /** The version of the key that created it; it signs the webhooks. */
  keyVersionId: string
  object: 'generation' | 'operation'
  /** Its kind (image, video, music) or operation. */
  kind: string
  /** The validated request with its defaults: a GenerationRequest without its kind, or an OperationInput. */
  input: Record<string, unknown>
  webhookUrl: string | null
  metadata: Record<string, string>
  idempotency: { key: string; bodyHash: string } | null
  /** The span of its request (W3C Trace Context), by which its run and its webhooks continue the trace; absent where traces were off. */
  traceparent?: string
  /** The id of the request that made it; absent on tasks of earlier releases. */
  requestId?: string
  /** The price of its quote; later changes of the list do not matter. */
  price: Price
  /** The share of the first quote that is charged when the task is canceled once its run has begun, in percent. Missing: none. */
  cancelPercent?: number
  /** What is held for it. */
  estimatedCost: number
  /** What may be held for it before its engine runs, where its sources are elsewhere and turn out to be more than they said at its creation. Missing: no more. */
  extendableTo?: number
  /** What was held for it at first, where that may be extended: what a cancellation costs a share of. */
  quotedCost?: number
  maxAttempts: number
  state: TaskState
  /** The claim that may run it: a run with an older epoch is refused (fencing). */
  epoch: number
  progress: number
  /** Runs begun and not handed back. */
  attempts: number
  lostLeases: number
  /** The provider's job of the present attempt; null when its engine remembered none. */
  job: string | null
  /** The name of the engine that has that job; absent where an earlier version began it, null where it was given up. */
  jobEngine?: string | null
  outcome: TaskOutcome | null
  actualCost: number | null
  refundAmount: number | null
  createdAt: number
  startedAt: number | null
  endedAt: number | null
  /** When a sweep handles it: end of its lease, or of its time as pending, queued, settling or unrelayed. Null: never. */
  sweepAt: number | null
  /** Events that an earlier release left here for its relay. */
  outbox: OutboxEvent[]
  /** Its events are in the log. Absent before, and on a task that an earlier release relayed, which knew no log. */
  eventsLogged?: true
}

/** Members that a state change may set. */
export type TaskFacts = Partial<
  Pick<
    Task,
    | 'epoch'
    | 'progress'
    | 'attempts'
    | 'lostLeases'
    | 'job'
    | 'jobEngine'
    | 'estimatedCost'
    | 'outcome'
    | 'actualCost'
    | 'refundAmount'
    | 'startedAt'
    | 'endedAt'
    | 'sweepAt'
    | 'outbox'
    | 'idempotency'
  >
>

/** Guard of a state change: the task is in one of the states `from` and, where given, has this epoch or one below, and this `sweepAt`. */
export type TaskGuard = { from: readonly TaskState[]; epoch?: number; epochBelow?: number; sweepAt?: number | null }

/** Whether a task passes a guard. */
export function passes(task: Pick<Task, 'state' | 'epoch' | 'sweepAt'>, { from, epoch, epochBelow, sweepAt }: TaskGuard): boolean {
  const isOfEpoch = (epoch === undefined || task.epoch === epoch) && (epochBelow === undefined || task.epoch < epochBelow)
  return from.includes(task.state) && isOfEpoch && (sweepAt === undefined || task.sweepAt === sweepAt)
}

/** What clients see: `processing` are also tasks that settle, and queued ones that wait for another attempt (`startedAt` is set). Others are not visible. */
export const STATUSES = ['queued', 'processing', 'completed', 'failed', 'canceled'] as const
export type PublicStatus = (typeof STATUSES)[number]

export type TaskFilter = {
  object: Task['object']
  /** Null for all kinds or operations. */
  kind: string | null
  /** Null for all visible tasks. */
  status: PublicStatus | null
  createdAfter: number | null
  createdBefore: number | null
}

export type DeliveryAttempt = {
  number: number
  at: number
  durationMs: number
  statusCode: number | null
  error: string | null
  responsePrefix: string | null
  /** Outside the schedule; absent on the attempts of the schedule. */
  redelivery?: true
}

/** One event for one receiver. */
export type Delivery = {
  /** `taskId.event`. */
  id: string
  taskId: string
  tenant: string
  keyVersionId: string
  event: WebhookEvent
  url: string
  /** Host and port of the receiver, for the cap per receiver. */
  host: string
  body: string
  /** Both of its task. */
  traceparent?: string
  requestId?: string
  /** `waiting`: not due until the first attempt of another delivery has ended. */
  state: 'waiting' | 'pending' | 'delivered' | 'failed'
  nextAttemptAt: number | null
  /** Raised by each claim. */
  epoch: number
  leaseUntil: number | null
  attempts: DeliveryAttempt[]
  /** Present while a redelivery is due or under way: when the schedule continues afterwards, null if it is over. */
  redelivery?: { resumeAt: number | null }
  createdAt: number
}

/** What a replay selects: deliveries of one tenant that were created from `since` up to, not including, `until`. */
export type ReplayRange = {
  since: number
  until: number
  event: WebhookEvent | null
  /** As states; null for all. */
  states: Delivery['state'][] | null
}

/** The last delivery that a replay examined; the next one begins after it. */
export type ReplayPosition = { createdAt: number; id: string }

/** What every log line about a task has: the task, its plan, and as `reqId` the request that made it. */
export function taskLogFields({ id, tenant, subscription, requestId }: Pick<Task, 'id' | 'tenant' | 'subscription' | 'requestId'>) {
  return { taskId: id, tenant, plan: planNameOf(subscription), ...(requestId === undefined ? {} : { reqId: requestId }) }
}

/** The same of a delivery, whose plan is not known. */
export function deliveryLogFields({ id, taskId, tenant, requestId }: Pick<Delivery, 'id' | 'taskId' | 'tenant' | 'requestId'>) {
  return { delivery: id, taskId, tenant, ...(requestId === undefined ? {} : { reqId: requestId }) }
}

/** Processing time in whole seconds, from the beginning of the first run to the end. Null before the end, or without a run. */
export function durationSeconds(task: Task): number | null {
  if (task.endedAt === null || task.startedAt === null) return null
  return Math.max(0, Math.round((task.endedAt - task.startedAt) / 1000))
}

/** Details of a picture or video with more pixels than the limit. */
export function pixelsAbove(width: number, height: number, pixels: number): TaskErrorDetails {
  return { found: { width, height }, limit: { megapixels: pixels / 1e6 } }
}

/** Details of a video or recording that is longer than the limit. */
export function lengthAbove(durationMs: number, mostMs: number): TaskErrorDetails {
  return { found: { seconds: durationMs / 1000 }, limit: { seconds: mostMs / 1000 } }
}

/** The public error of a failed task. */
export function publicError({ code, message, details }: Extract<TaskOutcome, { outcome: 'failed' }>) {
  return { code, message, ...(details && { details }) }
}

/** Prefix of the UUIDs v7 of a millisecond: 48 bits of time (RFC 9562, section 5.7). Ids of tasks, deliveries and events begin with that of the task's creation. */
export function idAt(ms: number): string {
  const time = Math.max(ms, 0).toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}`
}

/** Tolerance between the time in a task's id and its `createdAt`: longer than any request takes. */
const ID_SLACK_MS = 10 * 60_000
/** Sorts after every id. */
const LAST = '~'

/** The ids of a page of tasks lie from the first of these up to the second. Without these bounds, a filter on an old time would scan all newer tasks. */
export function idRange({ createdAfter, createdBefore }: TaskFilter, before: string | null): [first: string, end: string] {
  const latest = createdBefore === null ? LAST : idAt(createdBefore + ID_SLACK_MS)
  return [createdAfter === null ? '' : idAt(createdAfter - ID_SLACK_MS), before !== null && before < latest ? before : latest]
}
