/** Lingering close (RFC 9112, section 9.6): a connection that is closed with unread bytes is reset, and a reset can cost the client an answer that it has not read. */
import type { IncomingMessage } from 'node:http'

/** How much of a request is read after its answer, and for how long. */
export type Lingering = { bytes: number; ms: number }

const CHECK_MS = 100

/**
 * Reads and drops what still comes of a request that is answered before its end. Call it before the answer is written. At the end of the request the connection serves
 * the next one, or closes where the answer was the last; beyond the bounds it is cut.
 */
export function linger(request: IncomingMessage, { bytes, ms }: Lingering): void {
  const { socket } = request
  if (request.destroyed || socket.destroyed) return
  const most = socket.bytesRead + bytes
  let isLast = false
  // Node calls it after the last answer of a connection, whatever is unread.
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
  // Node does not close a request that has its answer when its connection ends.
  socket.once('close', end)
}
