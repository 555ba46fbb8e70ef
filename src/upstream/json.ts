/**
 * Reads a request body that may be hostile, so that what is written again for the upstream is what was read: no depth, number or key is
 * lost or changed.
 */
import { isUtf8 } from 'node:buffer'
import { Failure } from '../errors.ts'

/** Deeper than any schema of a tool, and far from where writing JSON again would exhaust the stack. */
export const DEEPEST = 200
/** Far more than the messages, parts and tools of any conversation. */
export const MOST_CONTAINERS = 200_000
/** Digits that a double keeps exactly. */
const EXACT_DIGITS = 15
const QUOTE = 0x22
const BACKSLASH = 0x5c

/** ECMAScript's JSON.parse source text access, which TypeScript's library does not know yet. */
type JsonWithSource = {
  parse(text: string, reviver: (this: unknown, key: string, value: unknown, context: { source?: string }) => unknown): unknown
  rawJSON(text: string): object
}

/**
 * Parses bytes as JSON. Numbers that a double cannot hold keep their digits (as `JSON.rawJSON`), `__proto__` is a member like any other, of
 * duplicate keys the last counts. Throws `invalid_json` for anything that is not JSON in UTF-8, and for nesting deeper than 200 or more objects and lists than a
 * conversation has: parsing millions of them would stop everybody else for seconds.
 */
export function parseJson(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw new Failure('invalid_json', { message: 'The request body is not valid UTF-8.' })
  const { depth, containers, longNumbers } = survey(bytes)
  if (depth > DEEPEST) throw new Failure('invalid_json', { message: `The request body is nested deeper than ${DEEPEST} levels.` })
  if (containers > MOST_CONTAINERS) throw new Failure('invalid_json', { message: `The request body has more than ${MOST_CONTAINERS} objects and lists.` })
  const text = bytes.toString('utf8').replace(/^\uFEFF/, '')
  try {
    return longNumbers ? (JSON as unknown as JsonWithSource).parse(text, keepDigits) : JSON.parse(text)
  } catch (cause) {
    throw new Failure('invalid_json', { cause })
  }
}

function keepDigits(_key: string, value: unknown, { source }: { source?: string }): unknown {
  if (typeof value !== 'number' || source === undefined) return value
  const exact = Number.isFinite(value) && source.replaceAll(/\D/g, '').length <= EXACT_DIGITS
  return exact ? value : (JSON as unknown as JsonWithSource).rawJSON(source)
}

/** One pass over the bytes outside of strings: how deep it goes, and whether any number is too long or too large for a double. */
function survey(bytes: Buffer): { depth: number; containers: number; longNumbers: boolean } {
  let depth = 0
  let deepest = 0
  let containers = 0
  let longNumbers = false
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0
    if (byte === QUOTE) {
      at = endOfString(bytes, at)
      if (at < 0) break
    } else if (byte === 0x7b || byte === 0x5b) {
      if (++depth > deepest) deepest = depth
      if (deepest > DEEPEST || ++containers > MOST_CONTAINERS) break
    } else if (byte === 0x7d || byte === 0x5d) {
      depth--
    } else if (byte >= 0x30 && byte <= 0x39) {
      const end = endOfNumber(bytes, at)
      if (end.at - at > EXACT_DIGITS || end.exponent) longNumbers = true
      at = end.at - 1
    }
  }
  return { depth: deepest, containers, longNumbers }
}

function endOfString(bytes: Buffer, start: number): number {
  for (let at = bytes.indexOf(QUOTE, start + 1); at >= 0; at = bytes.indexOf(QUOTE, at + 1)) {
    let backslashes = 0
    while (bytes[at - 1 - backslashes] === BACKSLASH) backslashes++
    if (backslashes % 2 === 0) return at
  }
  return -1
}

function endOfNumber(bytes: Buffer, start: number): { at: number; exponent: boolean } {
  let exponent = false
  let at = start
  for (; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0
    if (byte === 0x65 || byte === 0x45) exponent = true
    else if (!((byte >= 0x30 && byte <= 0x39) || byte === 0x2e || byte === 0x2b || byte === 0x2d)) break
  }
  return { at, exponent }
}

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
