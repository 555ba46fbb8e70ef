/** Tasks and webhook deliveries, as the Media API shows them (docs/media.md, docs/webhooks.md). */
import { serverTime } from '../clock.ts'
import { api, apiUrl } from './client.ts'

export const STATUSES = ['queued', 'processing', 'completed', 'failed', 'canceled'] as const
export const KINDS = ['image', 'video', 'music'] as const
export const OPERATIONS = ['background_remove', 'upscale', 'ai_edit', 'inpaint', 'trim', 'merge'] as const
export const WEBHOOKS = ['pending', 'delivered', 'failed'] as const
export type Status = (typeof STATUSES)[number]
export type Collection = 'generations' | 'operations'

export type Result = {
  image_url?: string
  video_url?: string
  audio_url?: string
  content_type: string
  bytes: number
  width: number | null
  height: number | null
  duration_ms: number | null
  expires_at: string
  /** All results of a task that made several, this one first. */
  images?: Result[]
}

export type Task = {
  id: string
  object: 'generation' | 'operation'
  kind?: string
  prompt?: string | null
  operation?: string
  input?: Record<string, unknown>
  status: Status
  progress: number
  queue_position: number | null
  result: Result | null
  error: { code: string; message: string } | null
  estimated_cost: string
  actual_cost: string | null
  refund_amount: string | null
  attempts: number
  duration_seconds: number | null
  webhook_url: string | null
  /** In lists: the state of its deliveries together; null without a webhook. */
  webhook?: Delivery['status'] | null
  metadata: Record<string, string>
  created_at: string
  started_at: string | null
  completed_at: string | null
  failed_at: string | null
  canceled_at: string | null
}

export type Attempt = {
  number: number
  at: string
  duration_ms: number | null
  status_code: number | null
  error: string | null
  response_prefix: string | null
  redelivery: boolean
}
export type Delivery = {
  id: string
  task_id: string
  event: string
  url: string
  status: (typeof WEBHOOKS)[number]
  next_attempt_at: string | null
  created_at: string
  attempts: Attempt[]
}
/** An event of the task's stream (docs/media.md, "Live events"). */
export type TaskEvent = { sequence: number; name: string; data: Record<string, unknown> }
/** `examined`: of a search for a state of webhooks that goes on with the next page. */
export type Page<T> = { data: T[]; has_more: boolean; next_cursor: string | null; examined?: number }
export type Filter = {
  status?: string
  object?: string
  /** A kind of generation, or an operation. */
  kind?: string
  /** The state of its webhooks. */
  webhook?: string
  created_after?: string
  created_before?: string
  cursor?: string
}
export type Replay = { since: string; until: string; event?: string; status?: string }

/** The collection of the Media API that has tasks of this object. */
export const collectionOf = (object: Task['object']): Collection => (object === 'generation' ? 'generations' : 'operations')
/** Whether a task has ended. */
export const isFinal = ({ status }: Task): boolean => status !== 'queued' && status !== 'processing'
/** Whether a task has made a picture with transparent parts. */
export const isTransparent = ({ operation, input }: Task): boolean =>
  operation === 'background_remove' && input?.['background'] === 'transparent'
/** Whether its result can still be had. */
export const isKept = ({ result }: Task): boolean => result !== null && Date.parse(result.expires_at) > serverTime()
/** The code of its kind or operation. */
export const taskKind = ({ kind, operation }: Task): string => kind ?? operation ?? 'task'
/** A result's address, of whatever family; '' when there is none. */
export const urlOf = ({ image_url: image, video_url: video, audio_url: audio }: Result): string => image ?? video ?? audio ?? ''
/** All results of a task; none before its end. */
export const resultsOf = ({ result }: Task): Result[] => result?.images ?? (result ? [result] : [])
/** The address under which a browser saves the result, as `upscale-1f5d0a2c.png`: what it is, and the end of the task's id. */
export function downloadOf(task: Task, result: Result): string {
  const index = resultsOf(task).indexOf(result)
  const name = `${taskKind(task).replaceAll('_', '-')}-${task.id.slice(-8)}${index > 0 ? `-${index + 1}` : ''}`
  return `${urlOf(result)}&name=${name}`
}

const path = (task: Pick<Task, 'object' | 'id'>) => `/media/${collectionOf(task.object)}/${encodeURIComponent(task.id)}`

/** A page of tasks of both collections, newest first. */
export const listTasks = (query: Filter, signal: AbortSignal): Promise<Page<Task>> =>
  api('/media/tasks', { query: { limit: 20, ...query }, signal })
/** One task. */
export const readTask = (object: Task['object'], id: string, signal?: AbortSignal): Promise<Task> =>
  api(path({ object, id }), signal ? { signal } : {})
/** Cancels a task. Rejects with `already_final` when it has ended. */
export const cancelTask = (task: Task): Promise<Task> => api(`${path(task)}/cancel`, { method: 'POST' })
/** Removes the file of a task's result now. */
export const deleteResult = (id: string): Promise<void> => api(`/media/results/${encodeURIComponent(id)}`, { method: 'DELETE' })
/** The webhooks of a task, with their attempts. */
export const listDeliveries = async (object: Task['object'], id: string, signal: AbortSignal): Promise<Delivery[]> =>
  (await api<Page<Delivery>>(`${path({ object, id })}/deliveries`, { signal })).data
/** What the webhooks of a task say, by delivery. */
export const listPayloads = async (id: string, signal: AbortSignal): Promise<Map<string, object>> => {
  const { data } = await api<{ data: { id: string; payload: object }[] }>(`/media/tasks/${encodeURIComponent(id)}/payloads`, { signal })
  return new Map(data.map((each) => [each.id, each.payload]))
}
/** One more attempt of a webhook now. */
export const redeliver = (id: string): Promise<Delivery> => api(`/media/deliveries/${encodeURIComponent(id)}/redeliver`, { method: 'POST' })

const EVENTS = [
  'task.created',
  'balance.held',
  'task.queued',
  'task.processing',
  'balance.burned',
  'balance.returned',
  'task.completed',
  'task.failed',
  'task.canceled',
]

/** Calls `add` with each event of a task, from its creation to its end, and `cut` when the stream is refused. Returns the function that stops. */
export function followHistory(task: Task, add: (event: TaskEvent) => void, cut: () => void): () => void {
  const stream = new EventSource(apiUrl(`${path(task)}/events`))
  for (const name of EVENTS)
    stream.addEventListener(name, ({ data, lastEventId }) =>
      add({ sequence: Number(lastEventId), name, data: JSON.parse(String(data)) as TaskEvent['data'] }),
    )
  stream.addEventListener('error', () => stream.readyState === EventSource.CLOSED && cut())
  return () => stream.close()
}

/** Makes all deliveries of a range due again, page by page. Returns how many. Throws a `Problem`. */
export async function replay(range: Replay): Promise<number> {
  let sum = 0
  let cursor: string | null = null
  do {
    const body: Replay & { cursor?: string } = { ...range, ...(cursor === null ? {} : { cursor }) }
    const page: { count: number; next_cursor: string | null } = await api('/media/deliveries/replay', { method: 'POST', body })
    sum += page.count
    cursor = page.next_cursor
  } while (cursor !== null)
  return sum
}
