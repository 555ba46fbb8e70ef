/** One attempt at one upstream: an HTTP request up to the first bytes of its answer. Until then it can be retried; afterwards it cannot. */
import type { Dispatcher } from 'undici'
import type { Cancellation } from '../cancellation.ts'
import type { UpstreamCall } from '../wires/wire.ts'
import type { Connections, RequestHead, Upstream } from './connection-pool.ts'
import { readerFor, type AttemptControl, type ResponseReader } from './response-reader.ts'
import { openResponseTimer, type ResponseTimeouts } from './response-timeouts.ts'
import { AttemptError, type UpstreamAnswer } from './upstream-answer.ts'

/** A larger body, and that of a stream, is sent as an iterable, which is empty once it is sent; undici keeps a buffer until the response has ended. */
const LARGE_BODY_BYTES = 16 * 1024

/**
 * Sends the call. Resolves with the first bytes of a stream or with a whole JSON answer. Rejects with a `Failure` when the request is at
 * fault, with an `AttemptError` when the upstream is, and with the reason of the cancellation when it comes before that. Timeouts, and a pause of the reader, hold for the whole response.
 */
export function attempt(
  upstream: Upstream,
  connections: Connections,
  call: UpstreamCall,
  body: string | Buffer[],
  cancellation: Cancellation,
): Promise<UpstreamAnswer> {
  const { promise, resolve, reject } = Promise.withResolvers<UpstreamAnswer>()
  let controller: Dispatcher.DispatchController | null = null
  let reader: ResponseReader | null = null
  let isSettled = false
  let hasEnded = false
  // The call holds the whole request: it is released once an answer has begun, only the rewriter stays.
  let pending: UpstreamCall | null = call
  const timer = openResponseTimer(timeoutsOf(upstream, call), abort)

  function settle(): void {
    isSettled = true
    cancellation.listener = null
  }

  function end(error: Error | null): void {
    if (hasEnded) return
    hasEnded = true
    timer.stop()
    if (!isSettled && cancellation.reason) control.reject(cancellation.reason)
    else if (reader) reader.ended(error)
    else control.reject(new AttemptError('no response', 0, error))
  }

  /** Ends it at once, unless it has ended. */
  function abort(reason: Error): void {
    if (hasEnded) return
    end(reason)
    controller?.abort(reason)
  }

  const control: AttemptControl = {
    resolve(answer) {
      settle()
      resolve(answer)
    },
    reject(error) {
      settle()
      reject(error)
      abort(error)
    },
    pause() {
      if (hasEnded) return
      timer.pause()
      controller?.pause()
    },
    resume() {
      if (hasEnded) return
      timer.resume()
      controller?.resume()
    },
    abort,
  }
  cancellation.listener = abort
  upstream[connections].dispatch(optionsOf(upstream.head(call), body, call.stream), {
    onRequestStart(started) {
      controller = started
      // Aborted while it was queued for a connection.
      if (hasEnded) started.abort(new Error('aborted'))
    },
    onResponseStart(started, status, headers) {
      // A buffer for each name and value, which undici would keep as long.
      started.rawHeaders = null
      if (hasEnded || status < 200 || !pending) return
      reader = readerFor(status, headers, pending, control, upstream.templates)
      pending = null
    },
    onResponseData(_controller, chunk) {
      if (hasEnded) return
      timer.received()
      reader?.data(chunk)
    },
    onResponseEnd: () => end(null),
    onResponseError: (_controller, error) => end(error),
  })
  return promise
}

/** A JSON answer arrives whole: its first byte takes as long as all of it. */
function timeoutsOf({ settings: { timeouts } }: Upstream, { stream }: UpstreamCall): ResponseTimeouts {
  return stream ? timeouts : { firstByteMs: Math.max(timeouts.firstByteMs, timeouts.idleMs), idleMs: timeouts.idleMs }
}

function optionsOf({ path, headers }: RequestHead, body: string | Buffer[], isStream: boolean): Dispatcher.DispatchOptions {
  const pieces = typeof body === 'string' ? [body] : body
  const length = pieces.reduce((sum, piece) => sum + Buffer.byteLength(piece), 0)
  const options = { method: 'POST', path, headersTimeout: 0, bodyTimeout: 0 } as const
  // undici writes the content-length of a text.
  if (typeof body === 'string' && !isStream && length <= LARGE_BODY_BYTES) return { ...options, headers, body }
  return { ...options, headers: [...headers, 'content-length', String(length)], body: iterableOf(pieces) as unknown as Buffer }
}

function* iterableOf(pieces: (string | Buffer)[]): Generator<string | Buffer> {
  while (pieces.length > 0) yield pieces.shift() ?? ''
}
