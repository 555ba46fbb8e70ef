/** How large a prompt is, from the bytes of its request. */
const QUOTE = 0x22
const BACKSLASH = 0x5c

/** A file or image inside of a body costs tokens by its dimensions, not by its base64: each counts as this many bytes of prompt. */
const INLINE_BYTES = 4096
const DATA_URL = Buffer.from('"data:')
const BASE64 = Buffer.from(';base64,')

/** The size of a prompt for its estimate in tokens: the bytes of the body, data URLs at a flat rate. */
export function promptBytes(bytes: Buffer): number {
  let size = bytes.length
  for (let at = bytes.indexOf(DATA_URL); at >= 0; at = bytes.indexOf(DATA_URL, at)) {
    const start = at
    at += DATA_URL.length
    if (bytes[start - 1] === BACKSLASH || !bytes.subarray(at, at + 128).includes(BASE64)) continue
    const end = bytes.indexOf(QUOTE, at)
    if (end < 0) break
    size -= Math.max(0, end - start - INLINE_BYTES)
    at = end
  }
  return size
}
