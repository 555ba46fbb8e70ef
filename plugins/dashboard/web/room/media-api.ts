/** What the AI Room calls: kinds and prices, quotes, creation, uploads and the events of a task. */
import { api, apiUrl, pageHeaders, Problem, signedOut } from '../api/client.ts'
import { collectionOf, isFinal, isTransparent, readTask, urlOf, type Result, type Task } from '../api/tasks.ts'

/** A kind of generation, or an operation. */
export type Kind = {
  name: string
  object: Task['object']
  available: boolean
  reason: string | null
  /** What kind of engine makes it. */
  engine?: 'preview' | 'local' | 'provider' | 'other'
  formats?: string[]
  max?: { megapixels: number; seconds: number | null; bytes: number }
  defaults?: { size: string | null; seconds: number | null }
  /** Of an operation: its own file in JSON Schema; of a generation: its further fields. */
  title?: string
  reads?: 'image' | 'video'
  fields?: Record<string, FieldSchema>
  required?: string[]
  values?: Record<string, unknown>
}
/** The part of JSON Schema that forms are made of. */
export type FieldSchema = {
  type?: string
  description?: string
  enum?: (string | number)[]
  minimum?: number
  maximum?: number
  maxLength?: number
  pattern?: string
}
export type Price = { plan: string; kind: string; amount: string; per: 'Job' | 'Second' | 'Megapixel' }
export type Kinds = { data: Kind[]; prices: Price[] }
export type Quote = {
  estimated_cost: string
  available: string
  affordable: boolean
  queue_position: number
  estimated_wait_seconds: number | null
}
export type Body = { kind?: string; operation?: string } & Record<string, unknown>

/** A picture, video or sound that operations can take. */
export type Source = {
  url: string
  type: string
  name: string
  width: number | null
  height: number | null
  durationMs: number | null
  /** Known to have transparent parts. */
  isTransparent?: boolean
}

/** The kinds and operations of the service, and the prices of each plan. */
export const readKinds = (signal: AbortSignal): Promise<Kinds> => api('/media/kinds', { signal })

const pathOf = (body: Body) => `/media/${collectionOf(body.operation === undefined ? 'generation' : 'operation')}`

/** What a task of this body would cost now. Rejects with the faults of the body. */
export const readQuote = (plan: string, body: Body, signal: AbortSignal): Promise<Quote> =>
  api(pathOf(body), { method: 'POST', body, query: { plan, dry_run: true }, signal })

/** Creates a task. A repetition after a lost answer has the same `idempotencyKey` and makes no second one. */
export const createTask = (plan: string, body: Body, idempotencyKey: string): Promise<Task> =>
  api(pathOf(body), { method: 'POST', body, query: { plan }, headers: { 'idempotency-key': idempotencyKey } })

/** A random key, also where the page has no secure context. */
export function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

/** A small version of a picture. */
export const thumbnailOf = ({ id }: Task): string => apiUrl(`/media/results/${id}/thumbnail`)

/** The result of a task as the source of an operation. */
export function sourceOf(task: Task, result: Result, name: string): Source {
  return {
    url: urlOf(result),
    type: result.content_type,
    name,
    width: result.width,
    height: result.height,
    durationMs: result.duration_ms,
    isTransparent: isTransparent(task),
  }
}

const UPLOAD_BYTES = 100 * 1024 * 1024

type Uploaded = { media_url: string; content_type: string; width: number | null; height: number | null; duration_ms: number | null }

/** Uploads a file under a plan; `progress` gets 0 to 1. Throws a `Problem`. XMLHttpRequest, because fetch reports no progress of a body. */
export function upload(plan: string, file: File, progress: (share: number) => void, abort: AbortSignal): Promise<Source> {
  if (file.size > UPLOAD_BYTES) return Promise.reject(new Problem(413, 'payload_too_large', 'A file may have at most 100 MiB.'))
  const { promise, resolve, reject } = Promise.withResolvers<Source>()
  const request = new XMLHttpRequest()
  request.open('POST', apiUrl('/media/uploads', { plan }))
  request.responseType = 'json'
  for (const [name, value] of Object.entries({ ...pageHeaders('POST'), 'content-type': file.type || 'application/octet-stream' }))
    request.setRequestHeader(name, value)
  request.upload.addEventListener('progress', ({ loaded, total }) => progress(total > 0 ? loaded / total : 0))
  request.addEventListener('error', () => reject(new Problem(0, 'unreachable', 'The upload did not reach the server.')))
  request.addEventListener('abort', () => reject(new DOMException('The upload was canceled.', 'AbortError')))
  request.addEventListener('load', () => {
    const answer = (request.response ?? {}) as Partial<Uploaded> & { detail?: string; error?: { code?: string } }
    if (request.status === 401) signedOut.value ??= { reason: 'expired' }
    if (request.status !== 201)
      return reject(
        new Problem(
          request.status,
          answer.error?.code ?? 'internal',
          answer.detail ?? `The server answered with status ${request.status}.`,
        ),
      )
    const { media_url: url = '', content_type: type = '', width = null, height = null, duration_ms: durationMs = null } = answer
    resolve({ url, type, name: file.name, width, height, durationMs })
  })
  abort.addEventListener('abort', () => request.abort(), { once: true })
  request.send(file)
  return promise
}

const CHANGES = ['task.processing', 'task.completed', 'task.failed', 'task.canceled']
/** Between reads of a task whose stream has broken off, and of the queue position, which no event tells. */
const READ_MS = 2500

/** Calls `changed` with each change of a task until it has ended, by its events stream; returns the function that stops. */
export function follow(task: Task, changed: (task: Task) => void): () => void {
  let latest = task
  let isOver = false
  const stream = new EventSource(apiUrl(`/media/${collectionOf(task.object)}/${task.id}/events`))
  const timer = setInterval(() => (latest.status === 'queued' || stream.readyState !== EventSource.OPEN) && void read(), READ_MS)

  function report(next: Task): void {
    if (isOver) return
    latest = next
    changed(next)
    if (isFinal(next)) stop()
  }
  async function read(): Promise<void> {
    await readTask(task.object, task.id).then(report, () => {})
  }
  function stop(): void {
    isOver = true
    clearInterval(timer)
    stream.close()
  }
  for (const name of CHANGES) stream.addEventListener(name, () => void read())
  stream.addEventListener('task.progress', ({ data }) => {
    const { progress } = JSON.parse(String(data)) as { progress: number }
    report({ ...latest, status: 'processing', queue_position: null, progress })
  })
  return stop
}
