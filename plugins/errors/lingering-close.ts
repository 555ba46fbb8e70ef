/**
 * Lingering close (RFC 9112, section 9.6): closing a connection with unread bytes resets it, and after a reset the client may lose an
 * answer that it has not read yet.
 */
import type { IncomingMessage } from 'node:http'

/** Limits on reading the rest of a request after its answer. */
export type Lingering = { bytes: number; ms: number }

const CHECK_MS = 100

/**
 * Reads and discards the rest of a request that is answered before its end. Call it before the answer is written. When the request ends,
 * the connection serves the next one, or closes if the answer said so. Beyond the limits the connection is destroyed.
 */
export function linger(request: IncomingMessage, { bytes, ms }: Lingering): void {
  const { socket } = request
  if (request.destroyed || socket.destroyed) return
  const most = socket.bytesRead + bytes
  let isLast = false
  // Node calls it after the last answer of a connection, even with unread bytes.
  socket.destroySoon = () => {
    isLast = true
    socket.end()
  }
  const time = setTimeout(() => socket.destroy(), ms)
  const volume = setInterval(() => {
    if (socket.bytesRead > most) socket.destroy()
  }, CHECK_MS)
  const end = () => {
    clearTimeout(time)
    clearInterval(volume)
    request.off('close', end)
    socket.off('close', end)
    Reflect.deleteProperty(socket, 'destroySoon')
    if (isLast) socket.destroySoon()
  }
  request.once('close', end)
  // A request that was answered gets no close event when its connection ends.
  socket.once('close', end)
}
