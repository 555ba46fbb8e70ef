/** Prompt size in bytes, for the estimate of prompt tokens. Inline images and files count at a flat rate. */
const QUOTE = 0x22
const BACKSLASH = 0x5c

/** The tokens of an inline image or file depend on its dimensions and not on its base64 text: each counts as this many bytes. */
const INLINE_BYTES = 4096
const DATA_URL = Buffer.from('"data:')
/** Longest distance of the marker from the beginning of its data URL. */
const TYPE_BYTES = 128
/** Eight bytes: Node searches shorter ones in quadratic time. */
const BASE64 = Buffer.from(';base64,')
/** Occurrences of the marker that are looked at; data URLs after these count in full. */
const MAX_MARKERS = 10_000

/** The bytes of a request body, each data URL counted as at most `INLINE_BYTES`. */
export function promptBytes(bytes: Buffer): number {
  let size = bytes.length
  let at = bytes.indexOf(BASE64)
  for (let markers = 0; at >= 0 && markers < MAX_MARKERS; markers++) {
    const from = Math.max(0, at - TYPE_BYTES)
    const start = from + bytes.subarray(from, at).lastIndexOf(DATA_URL)
    at += BASE64.length
    if (start >= from && bytes[start - 1] !== BACKSLASH) {
      const end = bytes.indexOf(QUOTE, at)
      if (end < 0) break
      size -= Math.max(0, end - start - INLINE_BYTES)
      at = end
    }
    at = bytes.indexOf(BASE64, at)
  }
  return size
}
