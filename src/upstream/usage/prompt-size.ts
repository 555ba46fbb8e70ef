/** Prompt size in bytes, for the estimate of prompt tokens. Inline images and files count at a flat rate. */
const QUOTE = 0x22
const BACKSLASH = 0x5c

/** The tokens of an inline image or file depend on its dimensions and not on its base64 text: each counts as this many bytes. */
const INLINE_BYTES = 4096
const DATA_URL = Buffer.from('"data:')
const BASE64 = Buffer.from(';base64,')

/** The bytes of a request body, each data URL counted as at most `INLINE_BYTES`. */
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
