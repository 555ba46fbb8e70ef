/**
 * A receiver of webhooks, or a source of media: a real HTTP or HTTPS server on a loopback port. It records requests, byte for byte,
 * and its answers are scripted. It verifies signatures independently of our code, with WebCrypto.
 */
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { Test } from 'tap'

export type Received = { method: string; path: string; headers: IncomingHttpHeaders; rawBody: Buffer }

/** The answer to one request; `until` delays it. A function writes the response itself. */
export type Answer =
  | { status?: number; headers?: Record<string, string>; body?: string | Buffer; until?: Promise<unknown> }
  | { redirect: string; status?: number }
  | 'reset'
  | 'never'
  | ((request: IncomingMessage, response: ServerResponse) => void)

export type Receiver = {
  /** `http://127.0.0.1:port`, or https. */
  url: string
  port: number
  received: Received[]
  /** Queues answers to the next requests, in order. Without any: 204. */
  next(...answers: Answer[]): void
  /** Sets the answer to all further requests. */
  always(answer: (request: Received) => Answer): void
  /** Resolves once `count` requests have arrived in all. */
  arrived(count: number): Promise<Received[]>
  /** Number of open connections. */
  connections(): number
  /** Resolves once no connection is open. */
  idle(): Promise<void>
  close(): Promise<void>
}

/** Opens a receiver on a free port of 127.0.0.1, until the test ends, where there is one. `tls` makes it speak https. */
export async function openReceiver(t: Test | null, options: { tls?: { key: string; cert: string } } = {}): Promise<Receiver> {
  const received: Received[] = []
  const answers: Answer[] = []
  const sockets = new Set<Socket>()
  let fallback: (request: Received) => Answer = () => ({})
  let changed = Promise.withResolvers<void>()
  const tell = (): void => {
    changed.resolve()
    changed = Promise.withResolvers<void>()
  }

  const listener: RequestListener = async (request, response) => {
    const chunks: Buffer[] = []
    request.on('error', () => {})
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const arrival = { method: request.method ?? '', path: request.url ?? '', headers: request.headers, rawBody: Buffer.concat(chunks) }
    received.push(arrival)
    const answer = answers.shift() ?? fallback(arrival)
    tell()
    await reply(answer, request, response)
  }
  const server = options.tls ? createSecureServer(options.tls, listener) : createServer(listener)
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.once('close', () => {
      sockets.delete(socket)
      tell()
    })
  })
  server.on('tlsClientError', () => {})
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  async function close(): Promise<void> {
    for (const socket of sockets) socket.destroy()
    await new Promise<void>((resolve) => server.close(() => resolve()))
  }
  t?.teardown(close)

  return {
    url: `${options.tls ? 'https' : 'http'}://127.0.0.1:${port}`,
    port,
    received,
    next: (...more) => void answers.push(...more),
    always(answer) {
      fallback = answer
    },
    async arrived(count) {
      while (received.length < count) await changed.promise
      return received
    },
    connections: () => sockets.size,
    async idle() {
      while (sockets.size > 0) await changed.promise
    },
    close,
  }
}

async function reply(answer: Answer, request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (answer === 'never') return
  if (answer === 'reset') return void request.socket.resetAndDestroy()
  if (typeof answer === 'function') return answer(request, response)
  if ('redirect' in answer) return void response.writeHead(answer.status ?? 302, { location: answer.redirect }).end()
  await answer.until
  response.writeHead(answer.status ?? 204, answer.headers).end(answer.body)
}

/** The answer with a file, or with the part of it that a Range header asks for; 404 without a file. */
export function ranged(file: Buffer | undefined, range: string | undefined): Answer {
  const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(range ?? '') ?? []
  if (!file) return { status: 404 }
  if (from === undefined) return { status: 200, body: file }
  const part = file.subarray(Number(from), Number(to) + 1)
  return { status: 206, headers: { 'content-range': `bytes ${from}-${Number(from) + part.length - 1}/${file.length}` }, body: part }
}

async function hmacKey(apiKey: string): Promise<CryptoKey> {
  return crypto.subtle.importKey('raw', new TextEncoder().encode(apiKey), { name: 'HMAC', hash: 'SHA-256' }, false, ['verify'])
}

/** True if `X-<brand>-Signature` is right for the received bytes (specification, section 6.3). */
export async function verifies(received: Received, apiKey: string, brand = 'SVC'): Promise<boolean> {
  const header = received.headers[`x-${brand.toLowerCase()}-signature`]
  const hex = typeof header === 'string' ? /^sha256=([0-9a-f]{64})$/.exec(header)?.[1] : undefined
  return hex !== undefined && crypto.subtle.verify('HMAC', await hmacKey(apiKey), Buffer.from(hex, 'hex'), new Uint8Array(received.rawBody))
}

/** True if the Standard Webhooks headers are right for the received bytes, under the secret `whsec_` + base64. */
export async function verifiesStandard(received: Received, secret: string): Promise<boolean> {
  const { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature } = received.headers
  if (typeof signature !== 'string' || !signature.startsWith('v1,') || !secret.startsWith('whsec_')) return false
  const key = await crypto.subtle.importKey('raw', Buffer.from(secret.slice(6), 'base64'), { name: 'HMAC', hash: 'SHA-256' }, false, ['verify'])
  const signed = Buffer.concat([Buffer.from(`${String(id)}.${String(timestamp)}.`), received.rawBody])
  return crypto.subtle.verify('HMAC', key, Buffer.from(signature.slice(3), 'base64'), new Uint8Array(signed))
}
