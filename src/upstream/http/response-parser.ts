/** Reads the responses on a connection (RFC 9112, sections 6 and 7) from bytes that may be split anywhere. It keeps nothing of a body. */
import { isTrailerSection, parseHead, ProtocolError, type ResponseHead } from './response-head.ts'

/** Called in this order, `data` any number of times. */
export type ResponseSink = {
  begun(head: ResponseHead): void
  /** The bytes are valid during the call only. */
  data(bytes: Buffer): void
  ended(): void
  /** Whether the rest is to wait. */
  isPaused(): boolean
}

/** Of a head, and of the trailers. */
const MAX_SECTION_BYTES = 16 * 1024
/** Of all chunks of a response. */
const MAX_EXTENSION_BYTES = 16 * 1024
const MAX_SIZE_DIGITS = 16
const MAX_INTERIM_ANSWERS = 100

const CR = 0x0d
const LF = 0x0a
const SECTION_END = '\r\n\r\n'
const BEGINNING = 'HTTP/1.'
/** Tested from `lastIndex` on. */
const BARE_LINE_END = /(?<!\r)\n|\r(?!\n|$)/g

/** A class, as what lives as long as a connection is (docs/decisions/0055-the-exchange.md). */
export class ResponseParser {
  readonly #sink: ResponseSink
  #state: 'nothing' | 'head' | 'length' | 'close' | 'size' | 'extension' | 'size end' | 'chunk' | 'chunk cr' | 'chunk lf' | 'trailers' =
    'nothing'
  /** What has arrived of a head or of trailers. */
  #section = ''
  /** Bytes that are left of the body or the chunk. */
  #left = 0
  #sizeDigits = 0
  #extensionBytes = 0
  #interimAnswers = 0

  constructor(sink: ResponseSink) {
    this.#sink = sink
  }

  /** A request is sent: one response is expected, behind any number of interim answers. */
  expect(): void {
    this.#state = 'head'
    this.#interimAnswers = 0
    this.#extensionBytes = 0
  }

  /** Returns how many bytes it has read, fewer when the sink is paused. Throws a `ProtocolError`: nothing more can be read then. */
  read(bytes: Buffer): number {
    let at = 0
    while (at < bytes.length && !this.#sink.isPaused()) at = this.#step(bytes, at)
    return at
  }

  /** The server sends nothing more: ends a body that ends with the connection. Throws a `ProtocolError` in the middle of anything else. */
  close(): void {
    if (this.#state !== 'close') throw new ProtocolError('the server closed the connection')
    this.#end()
  }

  /** Returns where the next step begins. */
  #step(bytes: Buffer, at: number): number {
    switch (this.#state) {
      case 'nothing':
        throw new ProtocolError('the server sent something that nobody asked for')
      case 'head':
      case 'trailers':
        return this.#readSection(bytes, at)
      case 'close':
        this.#sink.data(bytes.subarray(at))
        return bytes.length
      case 'length':
      case 'chunk':
        return this.#readBody(bytes, at)
      default:
        this.#readFraming(bytes[at] ?? 0)
        return at + 1
    }
  }

  #readSection(bytes: Buffer, at: number): number {
    const before = this.#section.length
    const text = this.#section + bytes.toString('latin1', at, Math.min(bytes.length, at + MAX_SECTION_BYTES + 1))
    const end = text.indexOf(SECTION_END, Math.max(0, before - SECTION_END.length))
    const length = end < 0 ? text.length : end + SECTION_END.length
    if (length > MAX_SECTION_BYTES) throw new ProtocolError('the response has a head or trailers that are too long')
    if (end < 0) {
      BARE_LINE_END.lastIndex = Math.max(0, before - 1)
      const isOurs = this.#state === 'trailers' || BEGINNING.startsWith(text.slice(0, BEGINNING.length))
      if (!isOurs || BARE_LINE_END.test(text)) throw new ProtocolError('the response is not HTTP/1.1')
      this.#section = text
      return bytes.length
    }
    this.#section = ''
    if (this.#state === 'head') this.#begin(parseHead(text.slice(0, length)))
    else if (isTrailerSection(text.slice(0, length))) this.#end()
    else throw new ProtocolError('the response has malformed trailers')
    return at + length - before
  }

  #begin(head: ResponseHead): void {
    const { status, body } = head
    if (status < 200) {
      if (status === 101 || ++this.#interimAnswers > MAX_INTERIM_ANSWERS) throw new ProtocolError(`unexpected status ${status}`)
      return
    }
    this.#state = body === 'chunked' ? 'size' : body === 'close' ? 'close' : 'length'
    this.#left = typeof body === 'number' ? body : 0
    this.#sizeDigits = 0
    this.#sink.begun(head)
    if (body === 0) this.#end()
  }

  #readBody(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left)
    this.#left -= end - at
    const isLast = this.#left === 0
    this.#sink.data(bytes.subarray(at, end))
    if (isLast && this.#state === 'length') this.#end()
    else if (isLast) this.#state = 'chunk cr'
    return end
  }

  /** A byte between the chunks. */
  #readFraming(byte: number): void {
    switch (this.#state) {
      case 'size':
        return this.#readSize(byte)
      case 'extension':
        if (byte === CR) this.#state = 'size end'
        else if (byte === 0x7f || (byte < 0x20 && byte !== 0x09) || ++this.#extensionBytes > MAX_EXTENSION_BYTES) malformedChunk()
        return
      case 'size end':
        if (byte !== LF) malformedChunk()
        this.#state = this.#left > 0 ? 'chunk' : 'trailers'
        // Without a field the empty line follows at once.
        if (this.#left === 0) this.#section = '\r\n'
        return
      case 'chunk cr':
        if (byte !== CR) malformedChunk()
        this.#state = 'chunk lf'
        return
      default:
        if (byte !== LF) malformedChunk()
        this.#state = 'size'
        this.#sizeDigits = 0
    }
  }

  #readSize(byte: number): void {
    const digit = hexDigit(byte)
    if (digit >= 0) {
      this.#left = this.#left * 16 + digit
      if (++this.#sizeDigits > MAX_SIZE_DIGITS || this.#left > Number.MAX_SAFE_INTEGER) malformedChunk()
    } else if (this.#sizeDigits > 0 && byte === CR) this.#state = 'size end'
    else if (this.#sizeDigits > 0 && byte === 0x3b) this.#state = 'extension'
    else malformedChunk()
  }

  #end(): void {
    this.#state = 'nothing'
    this.#sink.ended()
  }
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30
  const letter = byte | 0x20
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1
}

function malformedChunk(): never {
  throw new ProtocolError('the response has a malformed chunk')
}
