/** Incremental serialization of JSON, for bodies that are too large for one stretch of the event loop: `JSON.stringify` cannot pause. */

/** Characters between two yields, where a value counts as much as a short string: a few milliseconds. */
const PIECE = 128 * 1024
const VALUE = 16

/**
 * Yields the JSON of a value in UTF-8, in pieces that together are what `JSON.stringify` returns. The value is data: objects, lists,
 * strings, numbers, booleans, null, and numbers as `JSON.rawJSON`; members that are undefined are left out.
 */
export function* stringifyIncrementally(value: unknown): Generator<Buffer, void> {
  // A stack, not `yield*`, which passes each part through a generator for every level of nesting.
  const open: Parts[] = [[partsOf(value)].values()]
  let text = ''
  let room = PIECE
  for (let inner = open.at(-1); inner; inner = open.at(-1)) {
    const { value: part, done } = inner.next()
    if (done) open.pop()
    else if (typeof part === 'string') {
      text += part
      room -= part.length + VALUE
    } else {
      open.push(part)
      // Up to so much of it was visited to learn that it is too large.
      room -= PIECE
    }
    if (room > 0 || text === '') continue
    yield Buffer.from(text)
    text = ''
    room = PIECE
  }
  if (text !== '') yield Buffer.from(text)
}

/** Whether the JSON of a value has about so many characters at most. Visits no more than that. */
export function isWithin(value: unknown, characters: number): boolean {
  return roomAfter(value, characters) >= 0
}

function roomAfter(value: unknown, room: number): number {
  let left = room - VALUE
  if (typeof value === 'string') return left - value.length
  if (typeof value !== 'object' || value === null) return left
  if (Array.isArray(value)) {
    for (let n = 0; n < value.length && left >= 0; n++) left = roomAfter(value[n], left)
    return left
  }
  for (const name in value) {
    left = roomAfter((value as Record<string, unknown>)[name], left - name.length)
    if (left < 0) break
  }
  return left
}

/** Texts, and the parts of nested values. */
type Parts = Iterator<string | Parts, void>

/** What fits into a piece is left to `JSON.stringify`. */
function partsOf(value: unknown): string | Parts {
  if (isWithin(value, PIECE)) return JSON.stringify(value)
  if (typeof value === 'string') return stringParts(value)
  return Array.isArray(value) ? listParts(value) : objectParts(value as Record<string, unknown>)
}

function* listParts(list: unknown[]): Generator<string | Parts, void> {
  let before = '['
  for (const value of list) {
    yield before
    yield partsOf(value ?? null)
    before = ','
  }
  yield ']'
}

function* objectParts(object: Record<string, unknown>): Generator<string | Parts, void> {
  let before = '{'
  for (const [name, value] of Object.entries(object)) {
    if (value === undefined) continue
    yield before
    yield* stringParts(name)
    yield ':'
    yield partsOf(value)
    before = ','
  }
  yield before === '{' ? '{}' : '}'
}

function* stringParts(text: string): Generator<string, void> {
  yield '"'
  for (let at = 0; at < text.length;) {
    const end = endOf(text, at)
    yield JSON.stringify(text.slice(at, end)).slice(1, -1)
    at = end
  }
  yield '"'
}

/** Both halves of a surrogate pair are in one part: alone, each would be escaped. */
function endOf(text: string, at: number): number {
  const end = at + PIECE
  if (end >= text.length) return text.length
  const last = text.charCodeAt(end - 1)
  return last >= 0xd800 && last <= 0xdbff ? end - 1 : end
}
