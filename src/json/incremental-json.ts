/**
 * Incremental parser of strict JSON (RFC 8259, RFC 7493) for bodies that are too large for one stretch of the event loop. Reads the text in
 * slices and builds the values itself, since `JSON.parse` cannot pause.
 */
import { Failure } from '../domain/errors.ts'
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

/** Work between two yields: a few milliseconds. */
export const SLICE = { characters: 256 * 1024, values: 4_096 }

/** JSON.parse source text access of ECMAScript, missing in TypeScript's library. */
const { rawJSON } = JSON as unknown as { rawJSON(text: string): object }

/** An object or list that is open at the current position. */
type Frame = { object: Record<string, unknown> | null; list: unknown[]; name: string }

type Reader = {
  text: string
  manner: Manner
  at: number
  frames: Frame[]
  /** What the grammar allows next. `first`: a value, or the end of an empty container. `string`: the rest of the string token that is being read. */
  expects: Expected
  values: number
  root: unknown
  token: {
    isName: boolean
    /** Where the next piece starts. */ from: number
    /** The pieces before. */ head: string
    escapes: boolean
    halves: boolean
  }
}

type Expected = 'value' | 'first value' | 'name' | 'first name' | 'colon' | 'separator' | 'string'

/**
 * Parses a text without byte order mark; yields the number of values so far after each slice of work, and returns the value with their
 * number. Throws `invalid_json`, as `parseStrictJson` does.
 */
export function* parseIncrementally(text: string, manner: Manner): Generator<number, { value: unknown; values: number }, void> {
  const reader: Reader = {
    text,
    manner,
    at: 0,
    frames: [],
    expects: 'value',
    values: 0,
    root: undefined,
    token: { isName: false, from: 0, head: '', escapes: false, halves: false },
  }
  while (reader.at < text.length) {
    const limits = { at: reader.at + SLICE.characters, values: reader.values + SLICE.values }
    while (reader.at < text.length && reader.at < limits.at && reader.values < limits.values) {
      if (reader.expects === 'string') readString(reader, limits.at)
      else readToken(reader)
    }
    if (reader.at < text.length) yield reader.values
  }
  if (reader.frames.length > 0 || reader.expects !== 'separator') throw malformed()
  return { value: reader.root, values: reader.values }
}

/** Reads one token at the position, or the beginning of a string. */
function readToken(reader: Reader): void {
  const char = reader.text.charCodeAt(reader.at)
  if (char === 0x20 || char === 0x0a || char === 0x0d || char === 0x09) reader.at++
  else if (char === 0x22) beginString(reader)
  else if (char === 0x3a) beginMember(reader)
  else if (char === 0x2c) nextEntry(reader)
  else if (char === 0x7b || char === 0x5b) open(reader, char === 0x7b)
  else if (char === 0x7d || char === 0x5d) close(reader, char === 0x7d)
  else if (char === 0x2d || (char >= 0x30 && char <= 0x39)) readNumber(reader)
  else if (char === 0x74) readLiteral(reader, 'true', true)
  else if (char === 0x66) readLiteral(reader, 'false', false)
  else if (char === 0x6e) readLiteral(reader, 'null', null)
  else throw malformed()
}

function beginMember(reader: Reader): void {
  if (reader.expects !== 'colon') throw malformed()
  reader.expects = 'value'
  reader.at++
}

function nextEntry(reader: Reader): void {
  const top = reader.frames.at(-1)
  if (!top || reader.expects !== 'separator') throw malformed()
  reader.expects = top.object ? 'name' : 'value'
  reader.at++
}

function open(reader: Reader, isObject: boolean): void {
  if (reader.frames.length === MAX_DEPTH) throw tooDeep()
  const frame: Frame = isObject ? { object: {}, list: NO_LIST, name: '' } : { object: null, list: [], name: '' }
  add(reader, frame.object ?? frame.list)
  reader.frames.push(frame)
  reader.expects = isObject ? 'first name' : 'first value'
  reader.at++
}

const NO_LIST: unknown[] = []

function close(reader: Reader, isObject: boolean): void {
  const top = reader.frames.pop()
  const isEnd = reader.expects === 'separator' || reader.expects === (isObject ? 'first name' : 'first value')
  if (!top || (top.object !== null) !== isObject || !isEnd) throw malformed()
  reader.expects = 'separator'
  reader.at++
}

/** Adds a value to the open container. */
function add(reader: Reader, value: unknown): void {
  if (reader.expects !== 'value' && reader.expects !== 'first value') throw malformed()
  if (++reader.values > MAX_VALUES) throw tooManyValues()
  reader.expects = 'separator'
  const { length } = reader.frames
  const top = length > 0 ? reader.frames[length - 1] : undefined
  if (!top) reader.root = value
  else if (!top.object) top.list.push(value)
  else if (top.name === '__proto__')
    Object.defineProperty(top.object, top.name, { value, writable: true, enumerable: true, configurable: true })
  else top.object[top.name] = value
}

function readLiteral(reader: Reader, word: string, value: boolean | null): void {
  if (!reader.text.startsWith(word, reader.at)) throw malformed()
  add(reader, value)
  reader.at += word.length
}

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/

function readNumber(reader: Reader): void {
  const { text, at: start } = reader
  const first = text.charCodeAt(start) === 0x2d ? start + 1 : start
  let at = first
  let value = 0
  let isShortInteger = first === start
  for (; at < text.length; at++) {
    const char = text.charCodeAt(at)
    if (char >= 0x30 && char <= 0x39) value = value * 10 + char - 0x30
    else if (char === 0x2e || char === 0x2d || char === 0x2b || char === 0x65 || char === 0x45) isShortInteger = false
    else break
    if (at - first >= MAX_NUMBER_LENGTH) throw faulty(pathOf(reader), 'length')
  }
  isShortInteger &&= at - start <= EXACT_DIGITS && (text.charCodeAt(start) !== 0x30 || at - start === 1)
  add(reader, isShortInteger ? value : longNumber(reader, text.slice(start, at)))
  reader.at = at
}

function longNumber(reader: Reader, digits: string): unknown {
  if (!NUMBER.test(digits)) throw malformed()
  if (reader.manner === 'strict' && !isHeld(digits)) throw faulty(pathOf(reader), 'maximum')
  const value = Number(digits)
  const isExact = reader.manner === 'strict' || (Number.isFinite(value) && digits.replaceAll(/\D/g, '').length <= EXACT_DIGITS)
  return isExact ? value : rawJSON(digits)
}

function beginString(reader: Reader): void {
  const { expects } = reader
  if (expects === 'separator' || expects === 'colon') throw malformed()
  const { token } = reader
  token.isName = expects === 'name' || expects === 'first name'
  token.from = ++reader.at
  token.head = ''
  token.escapes = token.halves = false
  reader.expects = 'string'
}

/** Reads a string token on, to its end or to about `limit`. */
function readString(reader: Reader, limit: number): void {
  const { text, token } = reader
  let { at } = reader
  for (; at < text.length; at++) {
    const char = text.charCodeAt(at)
    // A piece does not end in an escape.
    if (char === 0x22 || at >= limit) break
    if (char < 0x20) throw malformed()
    if (char !== 0x5c) continue
    token.escapes = true
    const isUnicode = text.charCodeAt(at + 1) === 0x75
    token.halves ||= isUnicode && SURROGATE.test(text.slice(at + 2, at + 6))
    at += isUnicode ? 5 : 1
  }
  const piece = token.escapes ? unescaped(text.slice(token.from, at)) : text.slice(token.from, at)
  token.head = token.head === '' ? piece : token.head + piece
  token.from = reader.at = at
  token.escapes = false
  if (text.charCodeAt(at) === 0x22) endString(reader)
}

const SURROGATE = /^[dD][89a-fA-F]/

function unescaped(raw: string): string {
  try {
    return String(JSON.parse(`"${raw}"`))
  } catch {
    throw malformed()
  }
}

/** Takes the token, whose closing quote is at the position, as a member's name or as a value. */
function endString(reader: Reader): void {
  const { isName, head, halves } = reader.token
  reader.at++
  if (isName) addName(reader, head)
  if (halves && !head.isWellFormed()) throw faulty(pathOf(reader), 'surrogate')
  if (isName) return
  reader.expects = 'value'
  add(reader, head)
}

/** Begins a member. */
function addName(reader: Reader, name: string): void {
  const { frames } = reader
  const top = frames.at(-1) as Frame
  top.name = name
  if (Object.hasOwn(top.object ?? {}, name)) throw faulty(pathOf(reader), 'duplicate')
  if (reader.manner === 'strict' && isTrap(name, frames.at(-2)?.name)) throw faulty(pathOf(reader), 'not_allowed')
  reader.expects = 'colon'
}

/** The path of the value or member at the position. */
function pathOf({ frames }: Reader): (string | number)[] {
  // An open container is in its list already.
  return frames.map(({ object, list, name }, depth) => (object ? name : list.length - (depth < frames.length - 1 ? 1 : 0)))
}

function malformed(): Failure {
  return new Failure('invalid_json')
}
