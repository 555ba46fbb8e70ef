/** The inputs of a run: every source of a task is fetched or located, and its type, size and length are read from its content and checked against the route's limits. */
import { PassThrough } from 'node:stream'
import type { Input } from '../backends/engines/engine.ts'
import type { FileFacts, Files } from '../backends/files/files.ts'
import type { Egress } from '../egress/egress.ts'
import { Unavailable } from '../domain/errors.ts'
import type { Limits } from '../domain/media-generations.ts'
import type { MediaInfo } from '../domain/media-info.ts'
import {
  operationRequest,
  sourcesOf,
  takes,
  type Operation,
  type OperationInput,
  type Source,
  type Sourced,
} from '../domain/media-operations.ts'
import type { Task, TaskErrorCode, TaskErrorDetails } from '../domain/task.ts'
import { aboveLimits, infoOf, openFile } from './source-info.ts'
import type { TaskContext } from './task-context.ts'
import { removeFiles, sourceFile } from './inline-sources.ts'

export type InputContext = Pick<TaskContext, 'files' | 'clock' | 'linkedFile' | 'log'> & {
  egress: Pick<Egress, 'request'>
  /** For all sources of a run together, whose bytes are bounded together as well: a run holds a slot meanwhile. */
  inputTimeoutMs: number
}

/** Thrown where a run reads a source that could not be opened. */
export class SourceFailure extends Error {
  readonly failure: Failed
  constructor(failure: Failed) {
    super('a source cannot be read')
    this.failure = failure
  }
}

export type Failed = { outcome: 'failed'; code: TaskErrorCode; retryable: boolean; details: TaskErrorDetails; cause: unknown }
/** `media`: what the sources but the mask are. `close` removes what was fetched, after the run. */
export type OpenedInputs = { outcome: 'ready'; inputs: Input[]; media: MediaInfo[]; close(): Promise<void> } | Failed

export const REDIRECTS_MAX = 5
/** Beyond the longest run of a route, for files that a killed worker leaves behind. */
const SLACK_MS = 60_000

export const failed = (code: TaskErrorCode, details: TaskErrorDetails, cause: string, retryable = false): Failed => ({
  outcome: 'failed',
  code,
  retryable,
  details,
  cause: new Error(`${details.source ?? 'all sources'}: ${cause}`),
})

/**
 * Opens the sources of a task for one run. Fetched files are named by task and epoch, and expire if `close` is never called. Rejects with the reason of
 * an aborted signal, and with `Unavailable` when the files backend fails; every fault of a source is an outcome that leaves no file.
 */
export async function openInputs(
  context: InputContext,
  task: Task,
  route: { max: Limits; timeoutMs: number },
  signal: AbortSignal,
): Promise<OpenedInputs> {
  const sources = sourcesOf(task.input as Sourced)
  const expiresAt = context.clock() + context.inputTimeoutMs + route.timeoutMs + SLACK_MS
  const deadline = AbortSignal.timeout(context.inputTimeoutMs)
  const reading = AbortSignal.any([signal, deadline])
  const fetched: string[] = []
  const inputs: Input[] = []
  const media: MediaInfo[] = []
  const close = () => removeFiles(context, fetched.splice(0))
  let bytesLeft = route.max.bytes
  const request = task.object === 'generation' ? null : operationRequest(task.kind as Operation, task.input as OperationInput, '')

  async function open(source: Source): Promise<Failed | null> {
    const file = await locate(source)
    reading.throwIfAborted()
    if ('outcome' in file) return file
    bytesLeft -= file.size
    if (bytesLeft < 0) return failed('input_too_large', { limit: { bytes: route.max.bytes } }, 'too many bytes')
    // To the end of its first picture, behind which a second one may follow.
    const info = file.size === 0 ? null : await infoOf(context.files, file, { most: Infinity, signal: reading })
    if (!info || !takes(task.kind, source.role, info.contentType))
      return failed(
        'unsupported_input',
        { source: source.path, ...(info && { found: { content_type: info.contentType } }) },
        info?.contentType ?? 'no media',
      )
    if (info.animated)
      return failed(
        'several_pictures',
        { source: source.path, found: { content_type: info.contentType }, limit: { pictures: 1 } },
        'several pictures',
      )
    inputs.push({ role: source.role, contentType: info.contentType, bytes: file.size, read: () => contentOf(context.files, file.id) })
    if (source.role === 'media') media.push(info)
    // What a header says wrongly is found by the engine.
    const above = aboveLimits(task.kind, request, info, route.max)
    return above && failed('input_too_large', { source: source.path, ...above }, JSON.stringify(above))
  }

  /** What an error of `open` means: once the time is over, its source is late. */
  function late({ path }: Source, error: unknown): Failed {
    signal.throwIfAborted()
    if (!deadline.aborted || error instanceof Unavailable) throw error
    return failed('input_unreachable', { source: path }, 'the sources were not read in time', true)
  }

  /** The file of a source: its upload, an earlier result, or what is fetched now. */
  async function locate({ path, from }: Source): Promise<FileFacts | Failed> {
    const known = typeof from === 'string' ? context.linkedFile(from) : sourceFile(task.id, path)
    if (known !== null) {
      const facts = await context.files.stat(known)
      return facts && facts.expiresAt > context.clock() ? facts : failed('input_unreachable', { source: path }, 'the file has expired')
    }
    const file = sourceFile(`${task.id}-${task.epoch}`, path)
    fetched.push(file)
    return fetchTo(context, { url: from as string, path, file, expiresAt, maxBytes: bytesLeft }, reading)
  }

  try {
    for (const source of sources) {
      const fault = await open(source).catch((error: unknown) => late(source, error))
      if (!fault) continue
      await close()
      return fault
    }
    return { outcome: 'ready', inputs, media, close }
  } catch (error) {
    await close()
    throw error
  }
}

/** The sources of a task that could not be opened, for a run that resumes its job and reads none: reading one throws `SourceFailure`. */
export function unreadInputs({ input }: Task, failure: Failed): Extract<OpenedInputs, { outcome: 'ready' }> {
  const sources = sourcesOf(input as Sourced)
  const read = (): never => {
    throw new SourceFailure(failure)
  }
  return {
    outcome: 'ready',
    inputs: sources.map(({ role }) => ({ role, contentType: 'application/octet-stream', bytes: 0, read })),
    media: [],
    close: async () => {},
  }
}

type Fetch = { url: string; path: string; file: string; expiresAt: number; maxBytes: number }

/** Streams an address into the files backend, through the egress guard. */
async function fetchTo(
  { files, egress, inputTimeoutMs }: InputContext,
  { url, path, file, expiresAt, maxBytes }: Fetch,
  signal: AbortSignal,
): Promise<FileFacts | Failed> {
  let storing: Promise<FileFacts> | null = null
  const sink = (): PassThrough => {
    const body = new PassThrough()
    storing = files.put(file, body, { contentType: 'application/octet-stream', expiresAt })
    // Awaited below, once the request has ended.
    storing.catch(() => {})
    return body
  }
  const stored = (): Promise<FileFacts> | null => storing
  const request = {
    url,
    method: 'GET',
    deadlineMs: inputTimeoutMs,
    maxBytes,
    over: 'fail',
    redirects: REDIRECTS_MAX,
    sink,
    signal,
  } as const
  // It rejects when the files backend fails, whose own error says more.
  const reply = await egress.request(request).catch(async (error: unknown) => (await stored(), Promise.reject(error)))
  if (signal.aborted) throw signal.reason
  if (reply.outcome === 'refused') return failed('input_not_allowed', { source: path }, reply.reason)
  if (reply.outcome === 'failed') {
    if (reply.reason === 'too_large')
      return failed('input_too_large', { source: path, limit: { bytes: maxBytes } }, `more than ${maxBytes} bytes`)
    return failed('input_unreachable', { source: path }, reply.reason, reply.reason !== 'too_many_redirects')
  }
  return (await stored()) ?? failed('input_unreachable', { source: path }, `status ${reply.status}`, reply.status >= 500)
}

async function* contentOf(files: Files, id: string): AsyncGenerator<Uint8Array> {
  yield* (await openFile(files, id)).stream
}
