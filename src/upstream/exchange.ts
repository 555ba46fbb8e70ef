/** One HTTP exchange with an upstream: the request is sent, the answer comes as it arrives, can be paused, and is cut off when it takes too long. */
import type { Dispatcher } from 'undici'

/** What is sent. */
export type Outgoing = { path: string; headers: Record<string, string>; body: string }

/** Milliseconds: until the first byte of the body, and between any two of them. */
export type Patience = { firstByteMs: number; idleMs: number }

/** What is told as it happens. `ended` comes last, once: with null after a complete answer, else with what went wrong. Nothing follows it. */
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

export function exchange(dispatcher: Dispatcher, { path, headers, body }: Outgoing, patience: Patience, listener: Listener): Flow {
  let controller: Dispatcher.DispatchController | null = null
  let timer: NodeJS.Timeout | null = null
  let ended = false
  let paused = false
  let begun = false

  function finish(error: Error | null): void {
    if (ended) return
    ended = true
    if (timer) clearTimeout(timer)
    listener.ended(error)
  }

  function abort(reason: Error): void {
    if (ended) return
    finish(reason)
    controller?.abort(reason)
  }

  function wait(): void {
    if (timer) clearTimeout(timer)
    const ms = begun ? patience.idleMs : patience.firstByteMs
    timer = setTimeout(() => abort(new TimedOut(begun ? `nothing came for ${ms} ms` : `no answer within ${ms} ms`)), ms)
  }

  wait()
  const bytes = Buffer.from(body)
  dispatcher.dispatch(
    {
      method: 'POST',
      path,
      headers: { ...headers, 'content-length': String(bytes.length) },
      body: bytes.length > LARGE_BODY ? (once(bytes) as unknown as Buffer) : bytes,
      headersTimeout: 0,
      bodyTimeout: 0,
    },
    {
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
        if (begun) {
          timer?.refresh()
        } else {
          begun = true
          if (!paused) wait()
        }
        listener.data(chunk)
      },
      onResponseEnd: () => finish(null),
      onResponseError: (_controller, error) => finish(error),
    },
  )

  return {
    abort,
    pause() {
      if (paused || ended) return
      paused = true
      controller?.pause()
      if (timer) clearTimeout(timer)
      timer = null
    },
    resume() {
      if (!paused || ended) return
      paused = false
      wait()
      controller?.resume()
    },
  }
}

function* once(bytes: Buffer): Generator<Buffer> {
  yield bytes
}
