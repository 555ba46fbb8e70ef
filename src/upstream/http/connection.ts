/** A connection to an upstream: sends one request after another and hands on the responses. */
import { connect, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { openDeadline } from '../../http/deadlines.ts'
import type { ResponseHead } from './response-head.ts'
import { ResponseParser, type ResponseSink } from './response-parser.ts'

/** Who waits for a response. Called in this order; `failed` at any time and last. */
export type ResponseHandler = {
  responseBegun(head: ResponseHead): void
  /** The bytes are valid during the call only. */
  responseData(bytes: Buffer): void
  responseEnded(): void
  /**
   * `onIdleConnection`: the connection had served another request, and broke before any byte of this response, as one does that the server
   * closes while we send on it (RFC 9112, section 9.3.1). It says nothing about the state of the upstream.
   */
  responseFailed(error: Error, onIdleConnection: boolean): void
}

/** Where connections lead, and what is told of them. */
export type ConnectionOptions = {
  /** A name or an address, without brackets. */
  host: string
  port: number
  isTls: boolean
  /** For the connection and its TLS handshake. */
  connectMs: number
  /** The session of TLS that a new connection resumes. */
  session: Buffer | undefined
  /** A session was made with a server whose certificate is checked. */
  sessionMade(session: Buffer): void
  /** The response has ended, and the connection can be used again once it has `settled`. */
  freed(connection: Connection): void
  closed(connection: Connection): void
}

/** Every read goes here and is handed on before the next one of any connection, so that a connection that waits holds no memory for it. */
const READ = Buffer.allocUnsafeSlow(64 * 1024)
const NOTHING = Buffer.alloc(0)
/** A larger body is written beside its head. */
const ONE_TEXT_BYTES = 16 * 1024

/** A class, as what lives as long as a connection is (docs/decisions/0055-the-exchange.md). */
export class Connection implements ResponseSink {
  readonly #options: ConnectionOptions
  /** Whether it may be used again. */
  readonly #isKept: boolean
  readonly #socket: Socket
  readonly #parser = new ResponseParser(this)
  /** Of connecting, or of being idle. */
  readonly #deadline = openDeadline(() =>
    this.destroy(new Error(this.#hasServed ? 'idle' : `connect timeout after ${this.#options.connectMs} ms`)),
  )
  #handler: ResponseHandler | null = null
  #head = ''
  /** What is not sent yet. */
  #body: string | Buffer[] = []
  #isSent = false
  #hasServed = false
  #hasBegun = false
  #keepMs = 0
  #isPaused = false
  /** What was read and not handed on when it was paused. */
  #rest = NOTHING
  #isParsing = false
  /** Nothing is read, because it was paused at the last read. */
  #isStopped = false
  /** Made before the certificate was checked, as sessions of TLS 1.2 are. */
  #session: Buffer | null = null
  #isConnected = false

  constructor(options: ConnectionOptions, isKept: boolean) {
    this.#options = options
    this.#isKept = isKept
    this.#deadline.move(options.connectMs)
    const { host, port, isTls, session } = options
    const to = {
      host,
      port,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: 60_000,
      onread: { buffer: READ, callback: (size: number) => this.#read(size) },
    }
    this.#socket = isTls
      ? connectTls({
          ...to,
          ...(isIP(host) === 0 ? { servername: host } : {}),
          ...(session ? { session } : {}),
          ALPNProtocols: ['http/1.1'],
          rejectUnauthorized: true,
        })
      : connect(to)
    // Of TLS only once the certificate was checked.
    this.#socket.once(isTls ? 'secureConnect' : 'connect', () => this.#connected())
    this.#socket.on('session', (made: Buffer) => {
      this.#session = made
      if (this.#isConnected) this.#handOnSession()
    })
    this.#socket.on('drain', () => this.#writePieces())
    this.#socket.on('error', (error) => this.destroy(error))
    this.#socket.on('close', () => {
      this.destroy(new Error('the connection was closed'))
      options.closed(this)
    })
  }

  /** Takes a request, which goes out with `settled`. `head`: the request line and the fields, without `connection` and `content-length`. */
  send(head: string, body: string | Buffer[], handler: ResponseHandler): void {
    this.#head = head
    this.#body = body
    this.#handler = handler
    this.#hasBegun = false
  }

  isIdle(): boolean {
    return this.#handler === null && !this.#socket.destroyed
  }

  /** Since the last response, a turn of the event loop has passed. Sends the request, if there is one. */
  settled(): void {
    if (this.#handler) this.#write()
  }

  /** Whether the server has the whole request, or the system, which sends it. */
  isSent(): boolean {
    return this.#isSent && this.#body.length === 0 && this.#socket.writableLength === 0
  }

  isPaused(): boolean {
    // What arrives before the request is sent is nobody's response.
    return this.#isPaused && this.#isSent
  }

  /** Nothing is handed on until `resume`, unless the server closes the connection; of TCP at most one further read is kept. */
  pause(): void {
    this.#isPaused = true
  }

  resume(): void {
    this.#isPaused = false
    if (this.#isParsing) return
    const rest = this.#rest
    this.#rest = NOTHING
    this.#parse(rest)
    if (this.#isPaused || !this.#isStopped) return
    this.#isStopped = false
    this.#socket.read(0)
  }

  /** Closes it at once; a request on it fails. */
  destroy(error: Error): void {
    const handler = this.#handler
    this.#handler = null
    this.#body = []
    this.#rest = NOTHING
    this.#deadline.clear()
    this.#socket.destroy()
    handler?.responseFailed(error, this.#hasServed && !this.#hasBegun)
  }

  begun(head: ResponseHead): void {
    this.#keepMs = head.keepMs
    this.#handler?.responseBegun(head)
  }

  data(bytes: Buffer): void {
    this.#handler?.responseData(bytes)
  }

  ended(): void {
    const handler = this.#handler
    if (!handler) return
    this.#handler = null
    this.#hasServed = true
    this.#isSent = false
    this.resume()
    // A response may come before all of the request is sent.
    const isWhole = this.#body.length === 0 && this.#socket.writableLength === 0
    if (this.#isKept && isWhole && this.#keepMs > 0) {
      this.#deadline.move(this.#keepMs)
      this.#options.freed(this)
    } else this.#socket.destroy()
    handler.responseEnded()
  }

  #connected(): void {
    this.#deadline.clear()
    this.#socket.on('end', () => this.#closed())
    this.#isConnected = true
    this.#handOnSession()
    this.settled()
  }

  /** Not before the certificate was checked: its name is not checked again when a session is resumed. */
  #handOnSession(): void {
    if (this.#session) this.#options.sessionMade(this.#session)
    this.#session = null
  }

  /** So many bytes have arrived. False stops it. */
  #read(size: number): boolean {
    this.#hasBegun = this.#isSent
    this.#parse(READ.subarray(0, size))
    this.#isStopped = this.isPaused()
    return !this.#isStopped
  }

  #parse(bytes: Buffer): void {
    this.#isParsing = true
    try {
      const read = this.#parser.read(bytes)
      if (read < bytes.length) this.#rest = Buffer.concat([this.#rest, bytes.subarray(read)])
    } catch (error) {
      this.destroy(error as Error)
    }
    this.#isParsing = false
  }

  /** The server sends nothing more. */
  #closed(): void {
    while (this.#rest.length > 0) this.resume()
    try {
      this.#parser.close()
    } catch (error) {
      this.destroy(error as Error)
    }
  }

  #write(): void {
    const body = this.#body
    this.#isSent = true
    this.#deadline.clear()
    this.#parser.expect()
    const length = typeof body === 'string' ? Buffer.byteLength(body) : body.reduce((sum, piece) => sum + piece.length, 0)
    const head = `${this.#head}connection: ${this.#isKept ? 'keep-alive' : 'close'}\r\ncontent-length: ${length}\r\n\r\n`
    if (typeof body !== 'string') {
      this.#socket.write(head, 'latin1')
      return this.#writePieces()
    }
    this.#body = []
    const encoding = length === body.length ? 'latin1' : 'utf8'
    // As one text it is copied once more.
    if (encoding === 'latin1' && length <= ONE_TEXT_BYTES) return void this.#socket.write(head + body, encoding)
    this.#socket.cork()
    this.#socket.write(head, 'latin1')
    this.#socket.write(body, encoding)
    this.#socket.uncork()
  }

  /** As much as the socket takes, so that what is sent is not kept. */
  #writePieces(): void {
    if (!this.#isSent || typeof this.#body === 'string') return
    for (let piece = this.#body.shift(); piece; piece = this.#body.shift()) if (!this.#socket.write(piece)) return
  }
}
