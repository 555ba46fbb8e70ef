/** Splits a body into parts of equal size for multipart uploads and chunks, without holding it in memory. Pure. */
import type { FileBody } from './files.ts'

/**
 * The bytes of `body` in parts of exactly `size` bytes, the last one shorter; no part for an empty body. All parts share one buffer: a part is valid until the
 * next one is requested. Errors of `body` pass through.
 */
export async function* partsOf(body: FileBody, size: number): AsyncGenerator<Buffer> {
  if (body instanceof Uint8Array) {
    for (let at = 0; at < body.length; at += size) yield Buffer.from(body.buffer, body.byteOffset + at, Math.min(size, body.length - at))
    return
  }
  const part = Buffer.allocUnsafeSlow(size)
  let filled = 0
  for await (const bytes of body) {
    for (let at = 0; at < bytes.length;) {
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
