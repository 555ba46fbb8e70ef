/** Ends of JSON values in bytes that are read as latin1 (RFC 8259). */
import { isUtf8 } from 'node:buffer'

/** An `id` is a text without escapes. */
export type TokenKind = 'text' | 'nonempty' | 'number' | 'id'

/** The offset after the value of this kind that starts at `start`, or -1 if there is none. */
export function endOf(kind: TokenKind, raw: string, start: number): number {
  if (kind === 'text') return endOfText(raw, start)
  if (kind === 'nonempty') return raw.charCodeAt(start + 1) === 0x22 ? -1 : endOfText(raw, start)
  return kind === 'id' ? endOfId(raw, start) : endOfNumber(raw, start)
}

/** The offset after a JSON string of visible ASCII without escapes, or -1. */
function endOfId(raw: string, start: number): number {
  if (raw.charCodeAt(start) !== 0x22) return -1
  for (let at = start + 1; at < raw.length; at++) {
    const code = raw.charCodeAt(at)
    if (code === 0x22) return at > start + 1 ? at + 1 : -1
    if (code <= 0x20 || code >= 0x7f || code === 0x5c) return -1
  }
  return -1
}

/** The offset after the JSON string that starts at `start`, or -1 if there is no well-formed one of valid UTF-8 (RFC 8259, sections 7 and 8.1). */
function endOfText(raw: string, start: number): number {
  if (raw.charCodeAt(start) !== 0x22) return -1
  let ascii = true
  for (let at = start + 1; at < raw.length; at++) {
    const code = raw.charCodeAt(at)
    if (code === 0x22) return ascii || isUtf8(Buffer.from(raw.slice(start, at), 'latin1')) ? at + 1 : -1
    if (code < 0x20) return -1
    if (code >= 0x80) ascii = false
    if (code !== 0x5c) continue
    at++
    const escape = raw[at] ?? ''
    if (escape === 'u') {
      if (!/^[0-9a-fA-F]{4}$/.test(raw.slice(at + 1, at + 5))) return -1
      at += 4
    } else if (!'"\\/bfnrt'.includes(escape) || escape === '') {
      return -1
    }
  }
  return -1
}

function endOfNumber(raw: string, start: number): number {
  let at = start
  while (at < raw.length && raw.charCodeAt(at) >= 0x30 && raw.charCodeAt(at) <= 0x39) at++
  const digits = at - start
  return digits === 0 || digits > 15 || (digits > 1 && raw[start] === '0') ? -1 : at
}
