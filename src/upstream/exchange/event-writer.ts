/** Writes a stream of server-sent events: headers with the first bytes, keep-alive comments in silence, back-pressure, and a limit for stalled clients. */
import { openDeadline } from '../../http/deadlines.ts'
import { disconnectStalled } from '../../http/stalled-clients.ts'
import type { AnswerSource } from '../http/answer.ts'
import type { AnswerWriter, Client, WriterOptions } from './answer-writer.ts'

const KEEP_ALIVE = ': keep-alive\n\n'
/** Clients of the Messages wire wait for this event. */
const PING = 'event: ping\ndata: {"type": "ping"}\n\n'

/** RFC 9112, section 7.1; of nothing there is none, because an empty chunk is the last one. */
function chunkOf(bytes: string): string {
  return bytes === '' ? '' : `${bytes.length.toString(16)}\r\n${bytes}\r\n`
}

export class EventWriter implements AnswerWriter {
  readonly #client: Client
  readonly #options: WriterOptions
  /** Paused while the client's buffer is full. */
  readonly #source: Pick<AnswerSource, 'pause' | 'resume'>
  readonly #silence: string
  readonly #keepAlive = openDeadline(() => this.#breakSilence())
  readonly #stalled = openDeadline(() => this.#client.raw.destroy())
  #isStored = false
  #isClosed = false
  #isChunked = false
  #pending = ''
  /** The trailer section of an answer that ended before it was stored. */
  #ending: string | null = null

  /** `pings`: the stream is of the Messages wire. */
  constructor(client: Client, source: Pick<AnswerSource, 'pause' | 'resume'>, options: WriterOptions, pings: boolean) {
    this.#client = client
    this.#source = source
    this.#options = options
    this.#silence = pings ? PING : KEEP_ALIVE
  }

  hasBegun(): boolean {
    return this.#client.raw.headersSent || (this.#isStored && this.#pending !== '')
  }

  stored(): void {
    if (this.#isClosed) return
    this.#isStored = true
    this.#keepAlive.move(this.#options.keepAliveMs)
    if (this.#ending !== null) this.#finish(this.#ending)
    else this.#flush()
  }

  /** Bytes are sent together with all others of this turn of the event loop: a read from the upstream brings several parts. */
  write(bytes: string): void {
    if (this.#isClosed || this.#client.raw.destroyed) return
    if (this.#pending === '' && this.#isStored) queueMicrotask(() => this.#flush())
    this.#pending += bytes
  }

  /** The headers were sent before the estimate was known: the trailer section marks it. */
  end(bytes: string, isEstimated: boolean): void {
    if (this.#isClosed || this.#ending !== null) return
    this.#pending += bytes
    const trailers = isEstimated && bytes !== '' ? `${this.#options.usageHeader}: estimated\r\n` : ''
    if (this.#isStored) this.#finish(trailers)
    else this.#ending = trailers
  }

  close(): void {
    this.#isClosed = true
    this.#keepAlive.clear()
    this.#stalled.clear()
  }

  #finish(trailers: string): void {
    const { raw } = this.#client
    this.close()
    if (raw.destroyed) return
    if (!raw.headersSent) this.#sendHead()
    raw.end(this.#isChunked ? `${chunkOf(this.#pending)}0\r\n${trailers}\r\n` : this.#pending, 'latin1')
    this.#pending = ''
    disconnectStalled(raw, this.#options.stalledMs)
  }

  #sendHead(): void {
    const { raw } = this.#client
    const headers = this.#client.takeOver()
    headers['content-type'] = 'text/event-stream; charset=utf-8'
    headers['cache-control'] = 'no-cache'
    headers['x-accel-buffering'] = 'no'
    raw.writeHead(200, headers)
    // HTTP/1.0 has no chunks.
    this.#isChunked = raw.chunkedEncoding
    raw.chunkedEncoding = false
    raw.on('drain', () => {
      this.#stalled.clear()
      this.#source.resume()
    })
  }

  #breakSilence(): void {
    const { raw } = this.#client
    if (this.#isClosed || raw.destroyed) return
    if (!raw.writableNeedDrain) this.write(this.#silence)
    else this.#keepAlive.move(this.#options.keepAliveMs)
  }

  #flush(): void {
    const { raw } = this.#client
    if (this.#isClosed || raw.destroyed || this.#pending === '') return
    const bytes = this.#pending
    this.#pending = ''
    this.#keepAlive.move(this.#options.keepAliveMs)
    // By itself, Node would gather what is written in this tick. Head and bytes are one write.
    raw.socket?.cork()
    if (!raw.headersSent) {
      this.#sendHead()
      // Written by itself, the text of the headers is joined: Node keeps it as long as the answer, as a tree of some sixty parts.
      raw.flushHeaders()
    }
    // As one text, where Node would make a list of four for each chunk.
    const hasRoom = raw.write(this.#isChunked ? chunkOf(bytes) : bytes, 'latin1')
    raw.socket?.uncork()
    if (hasRoom) return
    this.#stalled.move(this.#options.stalledMs)
    this.#source.pause()
  }
}
