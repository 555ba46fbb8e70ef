/**
 * Strict JSON parser for hostile request bodies: I-JSON (RFC 7493), so that all readers agree on the meaning. UTF-8, no duplicate members,
 * no lone surrogates, and bounded depth and counts.
 */
import { isUtf8 } from 'node:buffer'
import { Failure } from '../domain/errors.ts'
import { parseIncrementally } from './incremental-json.ts'
import {
  EXACT_DIGITS,
  faulty,
  isHeld,
  isTrap,
  MAX_DEPTH,
  MAX_NUMBER_LENGTH,
  MAX_VALUES,
  tooDeep,
  tooManyValues,
  type Manner,
} from './json-faults.ts'

/** Up to this many names, scanning a list is faster than a set. */
const FEW = 16

/**
 * Parses bytes as JSON, in one stretch; large bodies take `parseIncrementally`. Returns the value and the number of values in it. Throws
 * `invalid_json`, with the JSON Pointer of the fault in `errors` where there is one.
 */
export function parseStrictJson(bytes: Buffer, manner: Manner): { value: unknown; values: number } {
  const text = textOf(bytes)
  const { values, longNumbers, escapedNames } = survey(text, manner)
  try {
    // JSON.parse of V8 14 reads an escaped name as a backslash, once it has read an object with that name (docs/decisions/0028).
    return longNumbers || escapedNames ? toEnd(parseIncrementally(text, manner)) : { value: JSON.parse(text), values }
  } catch (cause) {
    throw cause instanceof Failure ? cause : new Failure('invalid_json', { cause })
  }
}

/** The text of UTF-8 bytes, without byte order mark. Throws `invalid_json` for other bytes. */
export function textOf(bytes: Buffer): string {
  if (!isUtf8(bytes)) throw new Failure('invalid_json', { message: 'The request body is not valid UTF-8.' })
  const text = bytes.toString('utf8')
  return text.startsWith('\uFEFF') ? text.slice(1) : text
}

function toEnd<T>(steps: Iterator<unknown, T, void>): T {
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
  }
}

/** Whether a value of a faithful body is a raw number that keeps its digits (an object in JavaScript). */
export function isLongNumber(value: unknown): boolean {
  return (JSON as unknown as { isRawJSON(value: unknown): boolean }).isRawJSON(value)
}

/** An object or array that is open at the current position. */
type Frame = {
  isObject: boolean
  /** The member names of an object so far; the last one belongs to the current member. */
  names: string[]
  /** The same as a set, once there are many. */
  known: Set<string> | null
  /** Number of complete array elements. */
  done: number
}

/** One pass over the text outside of strings, for faults that JSON.parse does not report. Syntax errors are left to JSON.parse. */
function survey(text: string, manner: Manner): { values: number; longNumbers: boolean; escapedNames: boolean } {
  const frames: Frame[] = []
  let top: Frame | undefined
  let values = 0
  let isName = false
  let longNumbers = false
  let escapedNames = false
  // The bytes were valid UTF-8, so a lone surrogate can only be an escape. Most texts have none, which is found out much faster.
  const mayHoldHalves = text.includes('\\u') && /\\u[dD][89a-fA-F]/.test(text)
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at)
    if (char === 0x22) {
      const end = endOfString(text, at)
      if (end < 0) break
      if (isName && top) {
        const name = text.slice(at + 1, end)
        escapedNames ||= name.includes('\\')
        addName(top, name, frames, manner)
        isName = false
      } else values++
      if (mayHoldHalves && !decoded(text.slice(at, end + 1)).isWellFormed()) throw faulty(pathOf(frames), 'surrogate')
      at = end
    } else if (char === 0x2c) {
      if (top) top.done++
      isName = top?.isObject === true
    } else if (char === 0x7b || char === 0x5b) {
      if (frames.length === MAX_DEPTH) throw tooDeep()
      values++
      isName = char === 0x7b
      top = { isObject: isName, names: [], known: null, done: 0 }
      frames.push(top)
    } else if (char === 0x7d || char === 0x5d) {
      frames.pop()
      top = frames.at(-1)
      isName = false
    } else if (char >= 0x30 && char <= 0x39) {
      const end = endOfNumber(text, at)
      if (end.at - at > EXACT_DIGITS || end.exponent) longNumbers = true
      if (end.at - at > MAX_NUMBER_LENGTH) throw faulty(pathOf(frames), 'length')
      if (longNumbers && manner === 'strict' && !isHeld(text.slice(at, end.at))) throw faulty(pathOf(frames), 'maximum')
      values++
      at = end.at - 1
    } else if (char === 0x74 || char === 0x66 || char === 0x6e) values++
    if (values > MAX_VALUES) throw tooManyValues()
  }
  return { values, longNumbers: longNumbers && manner === 'faithful', escapedNames }
}

/** Adds a member name to its object. Throws on a duplicate. */
function addName(frame: Frame, raw: string, frames: Frame[], manner: Manner): void {
  const name = raw.includes('\\') ? decoded(`"${raw}"`) : raw
  const { names } = frame
  const isKnown = frame.known ? frame.known.has(name) : names.includes(name)
  names.push(name)
  if (isKnown) throw faulty(pathOf(frames), 'duplicate')
  if (frame.known) frame.known.add(name)
  else if (names.length > FEW) frame.known = new Set(names)
  if (manner === 'strict' && isTrap(name, frames.at(-2)?.names.at(-1))) throw faulty(pathOf(frames), 'not_allowed')
}

/** The text of a string token, or the token itself when it is no string. */
function decoded(token: string): string {
  try {
    return String(JSON.parse(token))
  } catch {
    return token
  }
}

function endOfString(text: string, start: number): number {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let backslashes = 0
    while (text.charCodeAt(at - 1 - backslashes) === 0x5c) backslashes++
    if (backslashes % 2 === 0) return at
  }
  return -1
}

function endOfNumber(text: string, start: number): { at: number; exponent: boolean } {
  let exponent = false
  let at = start
  for (; at < text.length; at++) {
    const char = text.charCodeAt(at)
    if (char === 0x65 || char === 0x45) exponent = true
    else if (!((char >= 0x30 && char <= 0x39) || char === 0x2e || char === 0x2b || char === 0x2d)) break
  }
  return { at, exponent }
}

/** The path of the current position. */
function pathOf(frames: Frame[]): (string | number)[] {
  return frames.map(({ isObject, names, done }) => (isObject ? (names.at(-1) ?? '') : done))
}
