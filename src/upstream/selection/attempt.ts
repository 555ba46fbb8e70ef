/**
 * One attempt at one upstream, up to the point where it is known to answer. Until then another attempt may replace it; from then on the
 * answer is the client's.
 */
import type { Dispatcher } from 'undici'
import { Failure } from '../../domain/errors.ts'
import { exchange, type Flow, type Outgoing, type Patience } from './http-exchange.ts'
import { overloaded } from '../sse/stream-rewriter.ts'
import { judge, judgeError } from './error-classification.ts'
import { isMembers } from '../wires/member-allowlist.ts'
import type { Call, JsonAnswer, StreamRebuilder } from '../wires/wire.ts'

/** An answer that has begun. */
export type Opened = { kind: 'json'; answer: JsonAnswer } | OpenStream

export type OpenStream = {
  kind: 'stream'
  stream: StreamRebuilder
  /**
   * Lets the answer come. Called once; `ended` comes last, once, with null after the wire's terminal event. Nothing comes after an `abort`.
   */
  follow(sink: Sink): void
  pause(): void
  resume(): void
  /** Stops the upstream at once. */
  abort(): void
}

/** `bytes` is text read as latin1. */
export type Sink = { bytes(text: string): void; ended(failure: Failure | null): void }

/** An upstream that did not answer, or not with an answer. `status` is 0 when there was none. */
export class Trouble extends Error {
  readonly status: number
  readonly retryAfterMs: number | null

  constructor(what: string, status: number, cause?: unknown, retryAfterMs: number | null = null) {
    super(what, { cause })
    this.name = 'Trouble'
    this.status = status
    this.retryAfterMs = retryAfterMs
  }
}

const LARGEST_JSON = 64 * 1024 * 1024
const LARGEST_ERROR = 64 * 1024
/** After its terminal event an upstream gets this long to end the body, so that its connection can be used again. */
const LINGER_MS = 1000

/**
 * Sends the call. Resolves with the first bytes of a stream or the whole of a JSON answer. Rejects with a `Failure` when the request is at
 * fault, with `Trouble` when the upstream is, and with the signal's reason when it is aborted before that.
 */
export function attempt(dispatcher: Dispatcher, outgoing: Outgoing, patience: Patience, call: Call, signal: AbortSignal): Promise<Opened> {
  const { promise, resolve, reject } = Promise.withResolvers<Opened>()
  let reader: Reader | null = null
  let flow: Flow | null = null
  let settled = false
  // The call holds the whole request: once an answer has begun, only what rebuilds it is kept.
  let pending: Call | null = call
  const stop = () => flow?.abort(signal.reason as Error)
  const settle = () => {
    settled = true
    signal.removeEventListener('abort', stop)
  }
  const give: Give = {
    open: (opened) => {
      settle()
      resolve(opened)
    },
    refuse: (error) => {
      settle()
      reject(error)
      flow?.abort(error)
    },
    pause: () => flow?.pause(),
    resume: () => flow?.resume(),
    abort: (reason) => flow?.abort(reason),
  }
  flow = exchange(dispatcher, outgoing, patience, {
    started(status, headers) {
      if (pending) reader = readerFor(status, headers, pending, give)
      pending = null
    },
    data: (chunk) => reader?.data(chunk),
    ended(error) {
      if (!settled && signal.aborted) give.refuse(signal.reason as Error)
      else if (reader) reader.ended(error)
      else give.refuse(new Trouble('it did not answer', 0, error))
    },
  })
  if (signal.aborted) stop()
  else if (!settled) signal.addEventListener('abort', stop)
  return promise
}

type Give = Flow & { open(opened: Opened): void; refuse(error: Error): void }
type Reader = { data(chunk: Buffer): void; ended(error: Error | null): void }
type Headers = Record<string, string | string[] | undefined>

function readerFor(status: number, headers: Headers, call: Call, give: Give): Reader {
  const type = String(headers['content-type'] ?? '').toLowerCase()
  const encoding = String(headers['content-encoding'] ?? 'identity').toLowerCase()
  if (encoding !== 'identity') return refuser(give, new Trouble(`it answered in ${encoding}`, status))
  if (status !== 200)
    return collect(LARGEST_ERROR, give, (bytes) =>
      give.refuse(
        judge(status, bytes.toString('utf8')) ??
          new Trouble(`it answered ${status}`, status, bytes.toString('utf8', 0, 1000), retryAfter(headers)),
      ),
    )
  if (!call.stream) return collect(LARGEST_JSON, give, (bytes) => give.open({ kind: 'json', answer: read(bytes, call) }))
  if (type === '' || type.startsWith('text/event-stream')) return follower(call.open(), give)
  return collect(LARGEST_ERROR, give, (bytes) =>
    give.refuse(judgeError(errorOf(bytes)) ?? new Trouble(`it answered a stream as ${type}`, status)),
  )
}

function refuser(give: Give, error: Error): Reader {
  give.refuse(error)
  return { data() {}, ended() {} }
}

/** Gathers a body. What `done` throws refuses the attempt; an error body that is cut off is judged as far as it came. */
function collect(most: number, give: Give, done: (bytes: Buffer) => void): Reader {
  const chunks: Buffer[] = []
  let size = 0
  return {
    data(chunk) {
      size += chunk.length
      if (size > most) give.refuse(new Trouble('its answer is too large', 200))
      else chunks.push(chunk)
    },
    ended(error) {
      if (error) return give.refuse(new Trouble('its answer broke off', 200, error))
      try {
        done(Buffer.concat(chunks))
      } catch (cause) {
        give.refuse(cause instanceof Failure ? cause : new Trouble('its answer is not the wire', 200, cause))
      }
    },
  }
}

function read(bytes: Buffer, call: Call): JsonAnswer {
  const value: unknown = JSON.parse(bytes.toString('utf8'))
  if (isMembers(value) && isMembers(value['error']))
    throw judgeError(value['error']) ?? new Trouble('it answered an error as 200', 200, value['error'])
  return call.answer(value)
}

function errorOf(bytes: Buffer): unknown {
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'))
    return isMembers(value) ? value['error'] : null
  } catch {
    return null
  }
}

/** Reads a stream: up to its first event it can be refused, then it is opened, paused, and followed when the client is ready. */
function follower(stream: StreamRebuilder, give: Give): Reader {
  const outlet = openOutlet()
  let over = false
  let opened = false

  function conclude(failure: Failure | null): void {
    if (over) return
    over = true
    outlet.tell((to) => to.ended(failure))
  }

  function open(): void {
    opened = true
    give.pause()
    give.open({
      kind: 'stream',
      stream,
      follow(to) {
        give.resume()
        outlet.connect(to)
      },
      pause: give.pause,
      resume: give.resume,
      abort() {
        over = true
        outlet.close()
        give.abort(new Error('no longer wanted'))
      },
    })
  }

  function take(made: string): void {
    const phase = stream.phase()
    if (!opened && phase.name === 'broken')
      return give.refuse(phase.failure.status < 500 ? phase.failure : new Trouble('its stream broke', 200, phase.failure.facts.cause))
    if (!opened && made === '') return
    if (!opened) open()
    if (made !== '') outlet.tell((to) => to.bytes(made))
    if (phase.name === 'open') return
    conclude(phase.name === 'broken' ? phase.failure : null)
    setTimeout(() => give.abort(new Error('the answer is complete')), LINGER_MS).unref()
  }

  return {
    data(chunk) {
      if (!over) take(stream.push(chunk))
    },
    ended(error) {
      if (over) return
      if (!error) return take(stream.end())
      if (opened) conclude(overloaded('the stream broke off', error))
      else give.refuse(new Trouble('its stream broke off', 200, error))
    },
  }
}

/** What is told before anybody listens waits for the one who does. */
function openOutlet() {
  let sink: Sink | null = null
  let waiting: ((to: Sink) => void)[] = []
  let closed = false
  function tell(run: (to: Sink) => void): void {
    if (!sink) waiting.push(run)
    else if (!closed) run(sink)
  }
  return {
    tell,
    connect(to: Sink): void {
      sink = to
      for (const run of waiting) tell(run)
      waiting = []
    },
    close: () => (closed = true),
  }
}

/** `Retry-After` (RFC 9110, section 10.2.3) in milliseconds, where it is a number of seconds. */
function retryAfter(headers: Headers): number | null {
  const value = headers['retry-after']
  return typeof value === 'string' && /^\d{1,6}$/.test(value) ? Number(value) * 1000 : null
}
