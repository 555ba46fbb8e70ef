/** A body cut into parts of one size, so that what is sent in parts never lies in memory whole. Pure. */
import type { FileBody } from './files.ts'

/**
 * The bytes of `body` in parts of exactly `size` bytes, the last of them shorter; none at all for an empty body. One buffer serves them all: a part is to be done with
 * before the next is asked for. What `body` throws passes as it is.
 */
export async function* partsOf(body: FileBody, size: number): AsyncGenerator<Buffer> {
  if (body instanceof Uint8Array) {
    for (let at = 0; at < body.length; at += size) yield Buffer.from(body.buffer, body.byteOffset + at, Math.min(size, body.length - at))
    return
  }
  const part = Buffer.allocUnsafeSlow(size)
  let filled = 0
  for await (const bytes of body) {
    for (let at = 0; at < bytes.length; ) {
      const taken = Math.min(size - filled, bytes.length - at)
      part.set(bytes.subarray(at, at + taken), filled)
      at += taken
      filled += taken
      if (filled === size) {
        yield part
        filled = 0
      }
    }
  }
  if (filled > 0) yield part.subarray(0, filled)
}
