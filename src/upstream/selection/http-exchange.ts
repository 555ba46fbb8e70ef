/**
 * One HTTP exchange with an upstream: the request is sent, the answer comes as it arrives, can be paused, and is cut off when it takes too
 * long.
 */
import type { Dispatcher } from 'undici'

/** What is sent. */
export type Outgoing = { path: string; headers: Record<string, string>; body: string }

/** Milliseconds: until the first byte of the body, and between any two of them. */
export type Patience = { firstByteMs: number; idleMs: number }

/**
 * What is told as it happens. `ended` comes last, once: with null after a complete answer, else with what went wrong. Nothing follows it.
 */
export type Listener = {
  started(status: number, headers: Record<string, string | string[] | undefined>): void
  data(chunk: Buffer): void
  ended(error: Error | null): void
}

/** Control over an exchange under way. */
export type Flow = {
  /** Stops reading from the upstream; the time it is paused is not held against it. */
  pause(): void
  resume(): void
  /** Ends it at once, unless it has ended. */
  abort(reason: Error): void
}

/** The upstream kept us waiting. */
export class TimedOut extends Error {}

/** A body larger than this is sent in a way that lets go of it once it is sent; Node's client would keep it until the answer has ended. */
const LARGE_BODY = 16 * 1024

/** Sends the request and tells the listener. Never throws: what cannot even be sent ends the exchange with its error. */
export function exchange(dispatcher: Dispatcher, { path, headers, body }: Outgoing, patience: Patience, listener: Listener): Flow {
  let controller: Dispatcher.DispatchController | null = null
  let ended = false
  const watch = openWatch(patience, abort)

  function finish(error: Error | null): void {
    if (ended) return
    ended = true
    watch.stop()
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
      // Given up while it waited for a connection.
      if (ended) started.abort(new Error('aborted'))
    },
    onResponseStart(_controller, status, received) {
      if (!ended && status >= 200) listener.started(status, received)
    },
    onResponseData(_controller, chunk) {
      if (ended) return
      watch.came()
      listener.data(chunk)
    },
    onResponseEnd: () => finish(null),
    onResponseError: (_controller, error) => finish(error),
  }
  const bytes = Buffer.from(body)
  const sent = bytes.length > LARGE_BODY ? (once(bytes) as unknown as Buffer) : bytes
  dispatcher.dispatch(
    {
      method: 'POST',
      path,
      headers: { ...headers, 'content-length': String(bytes.length) },
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
      watch.pause()
      controller?.pause()
    },
    resume() {
      if (ended) return
      watch.resume()
      controller?.resume()
    },
  }
}

/** Times the upstream while it is being read: until its first bytes, then between any two of them. */
function openWatch({ firstByteMs, idleMs }: Patience, late: (reason: Error) => void) {
  let begun = false
  let paused = false
  let timer = setTimeout(expire, firstByteMs)

  function expire(): void {
    late(new TimedOut(begun ? `nothing came for ${idleMs} ms` : `no answer within ${firstByteMs} ms`))
  }

  function restart(): void {
    clearTimeout(timer)
    timer = setTimeout(expire, begun ? idleMs : firstByteMs)
  }

  return {
    came(): void {
      const first = !begun
      begun = true
      if (paused) return
      if (first) restart()
      else timer.refresh()
    },
    pause(): void {
      paused = true
      clearTimeout(timer)
    },
    resume(): void {
      if (paused) restart()
      paused = false
    },
    stop: () => clearTimeout(timer),
  }
}

function* once(bytes: Buffer): Generator<Buffer> {
  yield bytes
}
