/** WebSocket through @fastify/http-proxy: what the handshake carries, when it is charged, back-pressure, silence, and close reasons that name nobody. */
import type { IncomingMessage, OutgoingMessage } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { WebSocket } from 'ws'
import { Failure } from '../../src/domain/errors.ts'
import { hasKey, keyOf } from './client-key.ts'
import { countMessages, type MessageMemory } from './websocket-memory.ts'

const MAX_MESSAGE_BYTES = 16 * 1024 * 1024
const CLOSE_MS = 5_000
const HANDSHAKE_MS = 10_000
/** Above this a sender is paused until the other side has taken it. */
const BUFFERED_BYTES = 1024 * 1024
const CHECK_MS = 10

/** The library closes with the message of the error, which has the address of the service in it. */
class ClientSocket extends WebSocket {
  override close(code?: number, reason?: string | Buffer): void {
    super.close(code, code === 1011 ? 'the service failed' : reason)
  }
}

/** Whether the request asks for a WebSocket (RFC 6455, section 4.1). */
export function asksForWebSocket({ headers }: Pick<IncomingMessage, 'headers'>): boolean {
  return (headers.upgrade ?? '').split(',').some((token) => token.trim().toLowerCase() === 'websocket')
}

/** Throws `invalid_request` for a handshake that `ws` would answer in its own form. */
export function checkHandshake({ method, headers }: FastifyRequest): void {
  const isValid =
    method === 'GET' &&
    /^[+/0-9A-Za-z]{22}==$/.test(headers['sec-websocket-key'] ?? '') &&
    ['8', '13'].includes(String(headers['sec-websocket-version']))
  if (!isValid) throw new Failure('invalid_request', { message: 'The WebSocket handshake is not valid.' })
}

export type Handshake = {
  headers(request: FastifyRequest): Record<string, string>
  /** The service has accepted the connection. */
  opened(request: FastifyRequest): void
  /** The longest silence in both directions. */
  silenceMs(request: FastifyRequest): number
  /** The memory of the connection. */
  share(request: FastifyRequest): Parameters<typeof countMessages>[0]
}

/** The options of @fastify/http-proxy. */
export function websocketOptions({ headers, opened, silenceMs, share }: Handshake) {
  let opening: FastifyRequest | null = null
  /** By the socket of the service. */
  const memories = new WeakMap<WebSocket, MessageMemory>()
  return {
    websocket: true as const,
    wsServerOptions: { maxPayload: MAX_MESSAGE_BYTES, closeTimeout: CLOSE_MS, WebSocket: ClientSocket, handleProtocols: ownProtocol },
    wsClientOptions: {
      maxPayload: MAX_MESSAGE_BYTES,
      closeTimeout: CLOSE_MS,
      handshakeTimeout: HANDSHAKE_MS,
      followRedirects: false,
      rejectUnauthorized: true,
      // An inflated message could not be counted while it arrives.
      perMessageDeflate: false,
      rewriteRequestHeaders(_headers: object, request: FastifyRequest) {
        opening = request
        // The client of the service makes its own.
        return Object.fromEntries(
          Object.entries(headers(request)).filter(([name]) => !name.startsWith('sec-websocket-') && name !== 'host'),
        )
      },
      // Called by the constructor of the socket, right after the headers were made.
      finishRequest(outgoing: OutgoingMessage, target: WebSocket) {
        const request = opening
        if (request) {
          const { socket } = request.raw
          socket.setTimeout(silenceMs(request), () => socket.destroy())
          target.once('open', () => opened(request))
          const memory = countMessages(share(request), socket, target)
          memories.set(target, memory)
          // Only once `ws` reads it: the first listener gets what came with the answer.
          target.once('upgrade', ({ socket: service }) => target.once('open', () => memory.connected(service)))
        }
        outgoing.end()
      },
    },
    wsHooks: {
      onConnect: (_context: unknown, source: WebSocket, target: WebSocket) => memories.get(target)?.joined(source),
      onIncomingMessage(_context: unknown, source: WebSocket, target: WebSocket) {
        memories.get(target)?.joined(source)
        memories.get(target)?.whole('client')
        pauseWhileFull(source, target)
      },
      onOutgoingMessage(_context: unknown, source: WebSocket, target: WebSocket) {
        memories.get(target)?.joined(source)
        memories.get(target)?.whole('service')
        pauseWhileFull(target, source)
      },
    },
  }
}

/** The subprotocol, which the service is asked for too: the first without the key, which clients that cannot set headers send there. */
function ownProtocol(protocols: Set<string>, request: IncomingMessage): string | false {
  const key = keyOf(request)
  return [...protocols].find((protocol) => !hasKey(protocol, key)) ?? false
}

function pauseWhileFull(from: WebSocket, to: WebSocket): void {
  if (from.isPaused || (to.readyState === WebSocket.OPEN && to.bufferedAmount < BUFFERED_BYTES)) return
  from.pause()
  const check = setInterval(() => {
    const isWaiting = to.readyState === WebSocket.CONNECTING || (to.readyState === WebSocket.OPEN && to.bufferedAmount >= BUFFERED_BYTES)
    if (isWaiting && from.readyState === WebSocket.OPEN) return
    clearInterval(check)
    from.resume()
  }, CHECK_MS)
}
