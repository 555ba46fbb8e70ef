/** Connects to a checked address (DNS pinning). It takes addresses only, so no name is resolved a second time. */
import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'

export type Dialled = { outcome: 'connected'; socket: Socket; address: string } | { outcome: 'failed'; reason: 'connect' | 'tls' }

/** Connect timeout per address, so that one that drops packets leaves time for the next. */
const TRY_MS = 3000
const TRIES = 6

/**
 * Connects to the first address that answers. For https, the TLS handshake uses `host` as the server name, and the certificate must be
 * valid for it. When the signal aborts before it is connected, the socket is destroyed.
 */
export async function dial(to: {
  addresses: readonly string[]
  port: number
  host: string
  secure: boolean
  signal: AbortSignal
}): Promise<Dialled> {
  const addresses = to.addresses.slice(0, TRIES)
  for (const [index, address] of addresses.entries()) {
    const patienceMs = index === addresses.length - 1 ? null : TRY_MS
    const socket = await openTcp(address, to.port, patienceMs, to.signal)
    if (socket === null) continue
    const ready = to.secure ? await openTls(socket, to.host, to.signal) : socket
    return ready === null ? { outcome: 'failed', reason: 'tls' } : { outcome: 'connected', socket: ready, address }
  }
  return { outcome: 'failed', reason: 'connect' }
}

function openTcp(address: string, port: number, patienceMs: number | null, signal: AbortSignal): Promise<Socket | null> {
  if (isIP(address) === 0) throw new TypeError('only an IP address can be dialled')
  const socket = connectTcp({ host: address, port, noDelay: true })
  const timer = patienceMs === null ? undefined : setTimeout(() => socket.destroy(), patienceMs)
  return settled(socket, 'connect', signal).finally(() => clearTimeout(timer))
}

function openTls(under: Socket, host: string, signal: AbortSignal): Promise<Socket | null> {
  if (under.destroyed) return Promise.resolve(null)
  // RFC 6066, section 3: a literal address is no server name. The certificate is still checked against it, by `host`.
  const servername = isIP(host) === 0 ? host : ''
  const socket = connectTls({
    socket: under,
    host,
    servername,
    ALPNProtocols: ['http/1.1'],
    rejectUnauthorized: true,
    minVersion: 'TLSv1.2',
  })
  return settled(socket, 'secureConnect', signal)
}

/**
 * The socket once it is ready, null if it closed or the signal aborted before. It keeps an error listener, because a reset may come while
 * no other listener is attached.
 */
function settled(socket: Socket, ready: 'connect' | 'secureConnect', signal: AbortSignal): Promise<Socket | null> {
  const abort = (): void => void socket.destroy()
  if (signal.aborted) abort()
  signal.addEventListener('abort', abort, { once: true })
  return new Promise<Socket | null>((resolve) => {
    socket.on('error', () => {})
    socket.once('close', () => resolve(null))
    socket.once(ready, () => resolve(socket))
  }).finally(() => signal.removeEventListener('abort', abort))
}
