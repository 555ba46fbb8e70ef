/** The client's end of a stream: the head goes out with the first bytes, a silent stream gets comments, and a full buffer is waited for. */
import type { OutgoingHttpHeaders } from 'node:http'
import type { FastifyReply } from 'fastify'

export type SseWriter = {
  /** Whether anything was sent; from then on a failure is told in the stream. */
  begun(): boolean
  /** Sends bytes (text read as latin1). False: the buffer is full, wait for `drained`. */
  write(bytes: string): boolean
  /** Called each time when there is room again. */
  drained(resume: () => void): void
  /** Sends the last bytes and ends the response. */
  end(bytes: string): void
  /** No more comments: the client left, or the answer takes another way. */
  close(): void
}

const COMMENT = ': keep-alive\n\n'

/**
 * Nothing is sent before the first bytes, or before `keepAliveMs` of silence. A client that leaves a full buffer unread for `stalledMs` is
 * cut off.
 */
export function openSseWriter(reply: FastifyReply, keepAliveMs: number, stalledMs: number): SseWriter {
  const { raw } = reply
  let begun = false
  let over = false
  let stalled: NodeJS.Timeout | null = null
  let resume = () => {}
  const silence = setTimeout(comment, keepAliveMs)

  function begin(): void {
    begun = true
    // Fastify's own headers are set on the reply and would be lost with it.
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
      resume()
    })
  }

  function comment(): void {
    if (over || raw.destroyed) return
    if (!raw.writableNeedDrain) write(COMMENT)
    else silence.refresh()
  }

  function write(bytes: string): boolean {
    if (over || raw.destroyed) return true
    if (!begun) begin()
    silence.refresh()
    const room = raw.write(bytes, 'latin1')
    if (!room) stalled ??= setTimeout(() => raw.destroy(), stalledMs)
    return room
  }

  function close(): void {
    over = true
    clearTimeout(silence)
    if (stalled) clearTimeout(stalled)
  }

  return {
    begun: () => begun,
    write,
    drained(next) {
      resume = next
    },
    end(bytes) {
      if (over) return
      if (!begun) begin()
      close()
      if (!raw.destroyed) raw.end(bytes, 'latin1')
    },
    close,
  }
}
