/** One HTTP request to an upstream and its response, with back-pressure (pause and resume), timeouts and abort. */
import type { Dispatcher } from 'undici'
import { openResponseTimer, type ResponseTimeouts } from './response-timeouts.ts'

export type OutgoingRequest = { path: string; headers: Record<string, string>; body: string | Buffer[] }

/** `ended` is called last and once: with null after a complete response, else with the error. */
export type ExchangeListener = {
  started(status: number, headers: Record<string, string | string[] | undefined>): void
  data(chunk: Buffer): void
  ended(error: Error | null): void
}

/** Control over an exchange in flight. */
export type FlowControl = {
  /** Stops reading from the upstream; paused time does not count towards its timeouts. */
  pause(): void
  resume(): void
  /** Ends it at once, unless it has ended. */
  abort(reason: Error): void
}

/** A larger body is sent as an iterable, which is released once it is sent; undici would keep a buffer until the response has ended. */
const LARGE_BODY_BYTES = 16 * 1024

/** Sends the request. Never throws: a request that cannot be sent ends the exchange with its error. */
export function exchange(
  dispatcher: Dispatcher,
  { path, headers, body }: OutgoingRequest,
  timeouts: ResponseTimeouts,
  listener: ExchangeListener,
): FlowControl {
  let controller: Dispatcher.DispatchController | null = null
  let ended = false
  const timer = openResponseTimer(timeouts, abort)

  function finish(error: Error | null): void {
    if (ended) return
    ended = true
    timer.stop()
    listener.ended(error)
  }

  function abort(reason: Error): void {
    if (ended) return
    finish(reason)
    controller?.abort(reason)
  }

  const handler: Dispatcher.DispatchHandler = {
    onRequestStart(started) {
      controller = started
      // Aborted while it was queued for a connection.
      if (ended) started.abort(new Error('aborted'))
    },
    onResponseStart(_controller, status, received) {
      if (!ended && status >= 200) listener.started(status, received)
    },
    onResponseData(_controller, chunk) {
      if (ended) return
      timer.received()
      listener.data(chunk)
    },
    onResponseEnd: () => finish(null),
    onResponseError: (_controller, error) => finish(error),
  }
  const pieces = typeof body === 'string' ? [Buffer.from(body)] : body
  const length = pieces.reduce((sum, piece) => sum + piece.length, 0)
  const sent = length > LARGE_BODY_BYTES ? (iterableOf(pieces) as unknown as Buffer) : Buffer.concat(pieces)
  dispatcher.dispatch(
    {
      method: 'POST',
      path,
      headers: { ...headers, 'content-length': String(length) },
      body: sent,
      headersTimeout: 0,
      bodyTimeout: 0,
    },
    handler,
  )

  return {
    abort,
    pause() {
      if (ended) return
      timer.pause()
      controller?.pause()
    },
    resume() {
      if (ended) return
      timer.resume()
      controller?.resume()
    },
  }
}

function* iterableOf(pieces: Buffer[]): Generator<Buffer> {
  yield* pieces
}
