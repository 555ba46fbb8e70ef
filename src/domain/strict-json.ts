/**
 * Strict JSON parser for hostile request bodies: I-JSON (RFC 7493), so that all readers agree on the meaning. UTF-8, no duplicate members, no lone surrogates, and bounded
 * depth and counts.
 */
import { isUtf8 } from 'node:buffer'
import { Failure } from './errors.ts'

/** Deeper than any tool schema, and far below the depth at which serializing exhausts the stack. */
export const DEEPEST = 200
/** Objects and arrays: far more than any conversation has. Parsing millions would block the event loop for seconds. */
export const MOST_CONTAINERS = 200_000
export const MOST_MEMBERS = 1_000_000
/** Decimal digits that a double always keeps. */
const EXACT_DIGITS = 15
/** Up to this many names, scanning a list is faster than a set. */
const FEW = 16

/**
 * `faithful`: for bodies that are forwarded. Numbers that a double cannot hold keep their digits (as `JSON.rawJSON`), and `__proto__` is an ordinary member.
 * `strict`: for bodies that are read here. Both are refused.
 */
export type Manner = 'faithful' | 'strict'

/** JSON.parse source text access of ECMAScript, missing in TypeScript's library. */
type JsonWithSource = {
  parse(text: string, reviver: (this: unknown, key: string, value: unknown, context: { source?: string }) => unknown): unknown
  rawJSON(text: string): object
  isRawJSON(value: unknown): boolean
}

/** Parses bytes as JSON. Throws `invalid_json`, with the JSON Pointer of the fault in `errors` where there is one. */
export function parseStrictJson(bytes: Buffer, manner: Manner): unknown {
  if (!isUtf8(bytes)) throw new Failure('invalid_json', { message: 'The request body is not valid UTF-8.' })
  const text = bytes.toString('utf8').replace(/^\uFEFF/, '')
  const { longNumbers } = survey(text, manner)
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

/** Whether a value of a faithful body is a raw number that keeps its digits (an object in JavaScript). */
export function isLongNumber(value: unknown): boolean {
  return (JSON as unknown as JsonWithSource).isRawJSON(value)
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
function survey(text: string, manner: Manner): { longNumbers: boolean } {
  const frames: Frame[] = []
  let top: Frame | undefined
  let containers = 0
  let members = 0
  let isName = false
  let longNumbers = false
  // The bytes were valid UTF-8, so a lone surrogate can only be an escape.
  const mayHoldHalves = /\\u[dD][89a-fA-F]/.test(text)
  for (let at = 0; at < text.length; at++) {
    const char = text.charCodeAt(at)
    if (char === 0x22) {
      const end = endOfString(text, at)
      if (end < 0) break
      if (isName && top) {
        if (++members > MOST_MEMBERS) throw tooMuch(`has more than ${MOST_MEMBERS} members`)
        addName(top, text.slice(at + 1, end), frames, manner)
        isName = false
      }
      if (mayHoldHalves && !decoded(text.slice(at, end + 1)).isWellFormed()) throw faulty(frames, 'surrogate', 'holds half of a surrogate pair')
      at = end
    } else if (char === 0x2c) {
      if (top) top.done++
      isName = top?.isObject === true
    } else if (char === 0x7b || char === 0x5b) {
      if (frames.length === DEEPEST) throw tooMuch(`is nested deeper than ${DEEPEST} levels`)
      if (++containers > MOST_CONTAINERS) throw tooMuch(`has more than ${MOST_CONTAINERS} objects and lists`)
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
      if (longNumbers && manner === 'strict' && !isHeld(text.slice(at, end.at))) throw faulty(frames, 'maximum', 'is a number larger than can be read exactly')
      at = end.at - 1
    }
  }
  return { longNumbers: longNumbers && manner === 'faithful' }
}

/** Adds a member name to its object. Throws on a duplicate. */
function addName(frame: Frame, raw: string, frames: Frame[], manner: Manner): void {
  const name = raw.includes('\\') ? decoded(`"${raw}"`) : raw
  const { names } = frame
  const isKnown = frame.known ? frame.known.has(name) : names.includes(name)
  names.push(name)
  if (isKnown) throw faulty(frames, 'duplicate', 'is there more than once')
  if (frame.known) frame.known.add(name)
  else if (names.length > FEW) frame.known = new Set(names)
  if (manner === 'strict' && isTrap(name, frames)) throw faulty(frames, 'not_allowed', 'is not allowed')
}

/** Names that enable prototype pollution in code that merges objects carelessly. */
function isTrap(name: string, frames: Frame[]): boolean {
  return name === '__proto__' || (name === 'prototype' && frames.at(-2)?.names.at(-1) === 'constructor')
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

/** Whether a double holds the number (RFC 7493, section 2.2): within its range, and an integer exactly. */
function isHeld(digits: string): boolean {
  const value = Number(digits)
  return Number.isFinite(value) && (!/^\d+$/.test(digits) || Number.isSafeInteger(value))
}

function tooMuch(what: string): Failure {
  return new Failure('invalid_json', { message: `The request body ${what}.` })
}

/** The failure at the current position. */
function faulty(frames: Frame[], code: string, message: string): Failure {
  const path = frames.map(({ isObject, names, done }) => `/${isObject ? (names.at(-1) ?? '').replaceAll('~', '~0').replaceAll('/', '~1') : done}`).join('')
  const shown = path.toWellFormed()
  return new Failure('invalid_json', { message: `${shown || 'The body'} ${message}.`, param: shown.slice(1).replaceAll('/', '.') || null, errors: [{ path: shown, code, message }] })
}
