/** SSE writer to the client: headers with the first bytes, keep-alive comments on a silent stream, back-pressure, and a limit for stalled clients. */
import type { OutgoingHttpHeaders, ServerResponse } from 'node:http'
import type { FastifyReply } from 'fastify'
import { openDeadline } from '../../src/upstream/http/deadlines.ts'

export type SseWriter = {
  /** Whether bytes were written; a later failure must be an event of the stream. */
  started(): boolean
  /** Sends bytes (text read as latin1), together with all others of this turn of the event loop: a read from the upstream brings several parts. */
  write(bytes: string): void
  /** Sets the source, which is paused while the buffer is full. */
  control(source: Source): void
  /** Sends the last bytes and ends the response. */
  end(bytes: string): void
  /** The same, where the bytes carry an estimated usage: marks it in the trailer section, because the headers were sent before it was known. */
  endEstimated(bytes: string): void
  /** Stops all timers and ignores later writes: the client disconnected, or the answer is an HTTP error. */
  close(): void
}

/** Where the bytes come from. */
export type Source = { pause(): void; resume(): void }

/** How long a client may leave a full buffer unread before it is disconnected. */
export const STALLED_CLIENT_MS = 300_000

/** For an answer that was ended: destroys its connection when the client reads nothing of it for `stalledMs`, so that its request is settled. */
export function disconnectStalled(raw: ServerResponse, stalledMs: number): void {
  // The operating system has taken all of it, as it does unless a client reads slowly, or nobody reads any more.
  if (raw.destroyed || (raw.writableEnded && raw.writableLength === 0)) return
  // Node restarts this timer while bytes leave its queue, destroys the socket when nobody handles it, and sets the keep-alive timeout after the answer.
  raw.setTimeout(stalledMs)
}

const KEEP_ALIVE = ': keep-alive\n\n'
/** Clients of the Messages wire wait for this event. */
const PING = 'event: ping\ndata: {"type": "ping"}\n\n'

export type SseWriterOptions = {
  /** Silence on a stream before it gets a keep-alive comment. */
  keepAliveMs: number
  /** How long a client may leave a full buffer unread before it is disconnected. */
  stalledMs: number
  /** The header, or trailer field of a stream, that marks an answer whose `usage` is our estimate: `x-svc-usage: estimated`. */
  usageHeader: string
  /** Whether the stream is of the Messages wire. */
  pings?: boolean
}

/**
 * Sends nothing before the first bytes, or `keepAliveMs` of silence after `durable` was fulfilled. Disconnects a client that leaves a full buffer unread for `stalledMs`.
 */
export function openSseWriter(
  reply: FastifyReply,
  durable: Promise<void>,
  { keepAliveMs, stalledMs, usageHeader, pings = false }: SseWriterOptions,
): SseWriter {
  const { raw } = reply
  let pending = ''
  let started = false
  let closed = false
  let stalled: NodeJS.Timeout | null = null
  let source: Source | null = null
  const keepAlive = openDeadline(sendKeepAlive)
  const startKeepAlive = () => {
    if (!closed) keepAlive.move(keepAliveMs)
  }
  durable.then(startKeepAlive, () => {})

  function sendHead(): void {
    // Headers set on the reply are not sent after a hijack, so they are copied.
    reply.hijack()
    raw.writeHead(200, {
      ...(reply.getHeaders() as OutgoingHttpHeaders),
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
    })
    raw.on('drain', () => {
      if (stalled) clearTimeout(stalled)
      stalled = null
      source?.resume()
    })
  }

  /**
   * Node keeps the text of the headers as long as the answer, as a tree of some sixty parts, unless it was written by itself, which joins them. Corked, both are one write.
   */
  function writeFirst(bytes: string): boolean {
    sendHead()
    raw.socket?.cork()
    raw.flushHeaders()
    const hasRoom = raw.write(bytes, 'latin1')
    raw.socket?.uncork()
    return hasRoom
  }

  function sendKeepAlive(): void {
    if (closed || raw.destroyed) return
    if (!raw.writableNeedDrain) write(pings ? PING : KEEP_ALIVE)
    else keepAlive.move(keepAliveMs)
  }

  function write(bytes: string): void {
    if (closed || raw.destroyed) return
    started = true
    if (pending === '') queueMicrotask(flush)
    pending += bytes
  }

  function flush(): void {
    if (closed || raw.destroyed || pending === '') return
    const bytes = pending
    pending = ''
    keepAlive.move(keepAliveMs)
    if (raw.headersSent ? raw.write(bytes, 'latin1') : writeFirst(bytes)) return
    stalled ??= setTimeout(() => raw.destroy(), stalledMs)
    source?.pause()
  }

  function close(): void {
    closed = true
    keepAlive.clear()
    if (stalled) clearTimeout(stalled)
  }

  function end(bytes: string, trailers: OutgoingHttpHeaders): void {
    if (closed) return
    started = true
    if (!raw.headersSent) sendHead()
    close()
    if (raw.destroyed) return
    raw.addTrailers(trailers)
    raw.end(pending + bytes, 'latin1')
    disconnectStalled(raw, stalledMs)
  }

  return {
    started: () => started,
    write,
    control(next) {
      source = next
    },
    end: (bytes) => end(bytes, {}),
    endEstimated: (bytes) => end(bytes, bytes === '' ? {} : { [usageHeader]: 'estimated' }),
    close,
  }
}
