/** One run of an engine: sources → engine → result in the files backend. The cost follows from the price of the quote. */
import type { Control, EngineRequest, Engines, Made, Medium, NotMade } from '../backends/engines/engine.ts'
import type { FileFacts, Files } from '../backends/files/files.ts'
import { costOf, type GenerationRequest, type Limits } from '../domain/media-generations.ts'
import { formatKept, operationRequest, sourcesOf, type Operation, type OperationInput, type Sourced } from '../domain/media-operations.ts'
import { putNewest } from '../domain/long-lived-maps.ts'
import { taskLogFields, type Task, type TaskResult } from '../domain/task.ts'
import { traced } from '../telemetry/tracing.ts'
import { Unavailable } from '../domain/errors.ts'
import type { RunOutcome } from './run-outcome.ts'
import { openInputs, SourceFailure, unreadInputs, type InputContext } from './fetch-inputs.ts'
import { fitHold } from './fit-hold.ts'
import type { TaskContext } from './task-context.ts'

export type EngineContext = InputContext &
  Pick<TaskContext, 'store' | 'moved'> & {
    engines: Engines
    resultMs: number
    /** Repeats a write while its backend is unavailable, for as long as finished media are worth keeping. */
    persist<T>(write: () => Promise<T>): Promise<T>
  }

/**
 * Runs the engine of a task that is `processing` and stores the result under `taskId-epoch`. Rejects with the signal's reason when it is aborted, and with
 * `Unavailable` when a backend failed.
 */
export async function runEngine(context: EngineContext, task: Task, control: Omit<Control, 'inputs'>): Promise<RunOutcome> {
  const offer = context.engines.offer(task.kind)
  if (!offer) return { outcome: 'failed', code: 'not_supported', retryable: false }
  const { route, formats } = offer
  const file = `${task.id}-${task.epoch}`
  // What would be paid for and could not be stored is not begun, and its sources are not fetched.
  const lacking = unstored.get(task.id) ?? (failing.has(context.files) ? 1 : 0)
  if (lacking > 0 && control.job.id === null) await probe(context, `${file}-probe`, lacking, control.signal)
  const found = await openInputs(context, task, route, control.signal)
  // A job that the provider bills needs its sources no more; a new one would.
  const resumes = found.outcome === 'failed' && control.job.id !== null
  const opened = resumes ? unreadInputs(task, found) : found
  if (opened.outcome === 'failed') return failedRun(context, task, opened)
  const request = requestOf(
    task,
    formatKept(
      opened.inputs.map(({ contentType }) => contentType),
      formats,
    ),
  )
  try {
    const fit = resumes ? ({ outcome: 'held', task } as const) : await fitHold(context, task, opened.media, offer)
    if (fit.outcome === 'failed') return failedRun(context, task, fit)
    const made = await traced(
      'engine run',
      { within: true, attributes: { 'tollgate.engine': route.engine, 'gen_ai.request.model': route.model ?? undefined } },
      async (span) => {
        const ran = await context.engines.run(request, { ...control, inputs: opened.inputs }, limitsOf(fit.task, route.max))
        if (ran.outcome === 'failed') span.fail(ran.code)
        return ran
      },
    )
    if (made.outcome === 'failed') {
      // From reading its inputs, or storing its job.
      if (made.cause instanceof Unavailable) throw made.cause
      if (made.cause instanceof SourceFailure) return failedRun(context, task, made.cause.failure)
      return failedRun(context, task, made)
    }
    return { outcome: 'made', result: await storedAll(context, made, task.id, file), cost: costOf(task.price, made.used) }
  } finally {
    await opened.close()
  }
}

async function storedAll(context: EngineContext, made: Made, task: string, file: string): Promise<TaskResult> {
  const media: Medium[] = [made, ...(made.others ?? [])]
  try {
    const result = await stored(context, made, file)
    const others: TaskResult[] = []
    for (const other of media.slice(1)) others.push(await stored(context, other, `${file}-${others.length + 2}`))
    unstored.delete(task)
    return others.length > 0 ? { ...result, others } : result
  } catch (error) {
    putNewest(
      unstored,
      task,
      media.reduce((sum, { body, bytes = 1 }) => sum + (body instanceof Uint8Array ? body.length : bytes), 0),
      UNSTORED_MAX,
    )
    throw error
  } finally {
    for (const { release } of media) await release?.()
  }
}

async function stored(
  { files, clock, resultMs, persist }: EngineContext,
  { body, release, contentType, facts }: Medium,
  file: string,
): Promise<TaskResult> {
  const expiresAt = clock() + resultMs
  const write = () => put(files, file, body, { contentType, expiresAt })
  // A stream that is not released can be read once only.
  const { size } = await (body instanceof Uint8Array || release ? persist(write) : write())
  return { file, contentType, bytes: size, ...facts, expiresAt }
}

/** Backends that did not take the last file. */
const failing = new WeakSet<Files>()
/** The bytes of results that were made and not taken, by task: a full disk has room for smaller ones. */
const unstored = new Map<string, number>()
const UNSTORED_MAX = 1000

/** Throws `Unavailable` where so many bytes cannot be stored, and the reason of an aborted signal. Some backends would compress zeros. */
async function probe({ files, clock }: EngineContext, id: string, bytes: number, signal: AbortSignal): Promise<void> {
  const piece = Uint8Array.from({ length: Math.min(bytes, 64 * 1024) }, (_, i) => Math.imul(i * i + i, 2_654_435_761) >>> 16)
  async function* body(): AsyncGenerator<Uint8Array> {
    for (let left = bytes; left > 0; left -= piece.length) {
      signal.throwIfAborted()
      yield piece.subarray(0, left)
    }
  }
  await put(files, id, body(), { contentType: 'application/octet-stream', expiresAt: clock() })
  await files.remove(id)
}

async function put(files: Files, ...file: Parameters<Files['put']>): Promise<FileFacts> {
  try {
    const facts = await files.put(...file)
    failing.delete(files)
    return facts
  } catch (error) {
    failing.add(files)
    throw error
  }
}

/** `format`: of the result of an operation that names none. */
function requestOf({ object, kind, input }: Task, format: string): EngineRequest {
  if (object === 'operation') return operationRequest(kind as Operation, input as OperationInput, format)
  // Its picture reaches the engine as an input.
  const { image_url: _picture, ...parameters } = input
  return { kind, ...parameters } as GenerationRequest
}

/** The end of a result lies within a frame or a packet of what was asked. */
const FRAME_MS = 250

/** The limits of the result: what was held pays for it, to a frame. Otherwise a false header, or a low `max_cost`, would buy a long result. A hold by headers has their room already. */
function limitsOf({ object, price, estimatedCost }: Task, max: Limits): Limits {
  if (object === 'generation' || price.micro === 0) return max
  const held = estimatedCost / price.micro
  // Pixels are not: what the model makes of the source was quoted (`fit-hold.ts`), and it may make a few more.
  return price.per === 'Second' ? { ...max, durationMs: Math.min(max.durationMs, Math.round(held * 1000) + FRAME_MS) } : max
}

type FailedRun = Extract<RunOutcome, { outcome: 'failed' }>

function failedRun(
  { log }: EngineContext,
  task: Task,
  { cause, input, ...failure }: FailedRun & Pick<NotMade, 'input' | 'cause'>,
): FailedRun {
  const { code, retryable, retryAfterMs } = failure
  const source = input === undefined ? undefined : sourcesOf(task.input as Sourced)[input]?.path
  log.warn({ event: 'engine_failed', ...taskLogFields(task), kind: task.kind, code, retryable, retryAfterMs, err: cause }, 'engine failed')
  return source === undefined ? failure : { ...failure, details: { source, ...failure.details } }
}
