/** Interim answers `100 Continue`, which a server may send although the request expects none (RFC 9110, section 15.2). undici takes one for a fault. */
import type { Readable } from 'node:stream'

const START = Buffer.from('HTTP/1.1 100')
const END = '\r\n\r\n'
const NOTHING = Buffer.alloc(0)
/** Of one whose head has not ended. */
const MAX_BYTES = 16_384

/**
 * Drops each `100 Continue` before an answer from what `socket.read()` returns, by which undici reads. Anything else is left as it is.
 * Call the returned function before each request.
 */
export function dropContinue(socket: Readable): () => void {
  const read = socket.read.bind(socket) as (size?: number) => Buffer | null
  /** What was read and may be part of one; null once the answer has begun. */
  let held: Buffer | null = null
  socket.read = (size?: number) => {
    const chunk = read(size)
    if (held === null || chunk === null) return chunk
    const rest = afterContinue(held.length === 0 ? chunk : Buffer.concat([held, chunk]))
    held = rest.length <= MAX_BYTES && mayBeContinue(rest) ? rest : null
    return held === null ? rest : null
  }
  return () => {
    held = NOTHING
  }
}

function afterContinue(bytes: Buffer): Buffer {
  let rest = bytes
  while (rest.length >= START.length && mayBeContinue(rest)) {
    const end = rest.indexOf(END)
    if (end < 0) break
    rest = rest.subarray(end + END.length)
  }
  return rest
}

function mayBeContinue(bytes: Buffer): boolean {
  const length = Math.min(bytes.length, START.length)
  return START.compare(bytes, 0, length, 0, length) === 0
}
