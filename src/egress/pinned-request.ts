/** HTTP/1.1 exchanges over an open socket. undici implements the protocol and never connects by itself. */
import type { Socket } from 'node:net'
import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Client, errors } from 'undici'
import { openGrowingBuffer, type Take } from '../http/growing-buffer.ts'
import { dropContinue } from '../http/interim-answers.ts'

export type Head = { status: number; headers: Record<string, string | string[] | undefined> }

export type Message = {
  url: URL
  method: 'GET' | 'HEAD' | 'POST'
  headers: Record<string, string>
  body: string | Uint8Array | null
}

export type Reading = {
  /** Upper bound of the bytes read of a body. */
  maxBytes: number
  /** For a longer body: `cut` truncates it, which is a valid answer, and `fail` ends as `too_large`. */
  over: 'cut' | 'fail'
  /** Destination of a 2xx body instead of memory; the body of any other answer is then not read. */
  sink: ((head: Head) => Writable) | null
  /** Counts the memory of a body that is read; a failure of it ends the exchange. */
  take: Take
}

export type Exchanged =
  | ({ outcome: 'answered'; body: Uint8Array } & Head)
  | { outcome: 'failed'; reason: 'aborted' | 'reset' | 'protocol' | 'too_large'; status: number | null }

/** An open socket to a checked address, and the client that speaks over it. `expectAnswer` comes before each request. */
export type Connection = { client: Client; socket: Socket; address: string; expectAnswer: () => void }

class TooLarge extends Error {}

/** While it is idle, undici closes it after `idleMs`, or sooner where the server announces a shorter time. */
export function openConnection(
  origin: string,
  { socket, address, idleMs }: { socket: Socket; address: string; idleMs: number },
): Connection {
  const expectAnswer = dropContinue(socket)
  const client = new Client(origin, {
    connect: once(socket),
    allowH2: false,
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: idleMs,
    keepAliveMaxTimeout: idleMs,
  })
  return { client, socket, address, expectAnswer }
}

/** Closes the connection at once; a request on it fails. */
export function closeConnection({ client, socket }: Connection): void {
  void client.destroy()
  socket.destroy()
}

/** Whether the last answer was read to its end and neither side closed the connection. */
export function isReusable({ client, socket }: Connection): boolean {
  return !socket.destroyed && client.stats.connected && client.stats.size === 0
}

/**
 * Sends the message and reads the answer. `last` asks the server to close the connection, which the caller closes in any case. Bodies are not decompressed.
 * Rejects with the error of the sink, or of `take`, when that fails.
 */
export async function exchange(
  { client, expectAnswer }: Connection,
  message: Message,
  reading: Reading,
  { last, signal }: { last: boolean; signal: AbortSignal },
): Promise<Exchanged> {
  let head: Head | null = null
  expectAnswer()
  try {
    const { pathname, search } = message.url
    const { statusCode, headers, body } = await client.request({
      path: pathname + search,
      method: message.method,
      headers: message.headers,
      body: message.body,
      reset: last,
      signal,
    })
    body.on('error', () => {})
    head = { status: statusCode, headers }
    const wanted = reading.sink === null || (statusCode >= 200 && statusCode < 300)
    if (message.method === 'HEAD' || !wanted) return { outcome: 'answered', ...head, body: new Uint8Array(0) }
    if (reading.over === 'fail' && Number(headers['content-length'] ?? 0) > reading.maxBytes) throw new TooLarge()
    if (reading.sink === null) return { outcome: 'answered', ...head, body: await read(body, reading) }
    await pour(body, reading.maxBytes, reading.sink(head), signal)
    return { outcome: 'answered', ...head, body: new Uint8Array(0) }
  } catch (error) {
    return { outcome: 'failed', reason: signal.aborted ? 'aborted' : reasonOf(error), status: head?.status ?? null }
  }
}

/** A connector that returns the socket once and refuses a second connection. It calls back asynchronously: undici 8 misses a synchronous call. */
function once(socket: Socket): NonNullable<Client.Options['connect']> {
  let given = false
  return (_options, callback) => {
    queueMicrotask(() => {
      if (given || socket.destroyed) return callback(new Error('the connection is closed'), null)
      given = true
      callback(null, socket)
    })
  }
}

async function read(body: AsyncIterable<Uint8Array>, { maxBytes, over, take }: Reading): Promise<Uint8Array> {
  const taken = (bytes: number) => {
    try {
      take(bytes)
    } catch (cause) {
      throw new CallerFailed('no memory for the body', { cause })
    }
  }
  const buffer = openGrowingBuffer(maxBytes, taken)
  try {
    for await (const chunk of body) {
      const left = maxBytes - buffer.length()
      if (chunk.length > left && over === 'fail') throw new TooLarge()
      buffer.append(chunk.subarray(0, left))
      if (chunk.length >= left && over === 'cut') break
    }
    return buffer.bytes()
  } catch (error) {
    buffer.free()
    throw error
  }
}

/** The caller's sink or `take` failed, which is the cause. */
class CallerFailed extends Error {}

/** Streams a body into the sink with backpressure. The sink is ended when the body is complete, and destroyed when it is not. */
async function pour(body: AsyncIterable<Uint8Array>, maxBytes: number, sink: Writable, signal: AbortSignal): Promise<void> {
  let fault: unknown = null
  const counted = async function* (): AsyncGenerator<Uint8Array> {
    let bytes = 0
    try {
      for await (const chunk of body) {
        bytes += chunk.length
        if (bytes > maxBytes) throw new TooLarge()
        yield chunk
      }
    } catch (error) {
      fault = error
      throw error
    }
  }
  try {
    await pipeline(counted, sink, { signal })
  } catch (error) {
    throw fault ?? new CallerFailed('the sink failed', { cause: error })
  }
}

const MALFORMED = [errors.HTTPParserError, errors.HeadersOverflowError, errors.ResponseContentLengthMismatchError]

function reasonOf(error: unknown): 'reset' | 'protocol' | 'too_large' {
  if (error instanceof TooLarge) return 'too_large'
  if (error instanceof CallerFailed) throw error.cause
  if (error instanceof errors.InvalidArgumentError) throw error
  return MALFORMED.some((kind) => error instanceof kind) ? 'protocol' : 'reset'
}
