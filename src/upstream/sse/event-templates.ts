/**
 * Passes most events of a stream without parsing them. An event that was parsed and rebuilt becomes a template: what it looked like, with
 * holes where the text was, and what was made of it. A later event that is the same byte for byte outside of the holes, and has one well-
 * formed value in each, is rebuilt by putting its bytes into what was made. Anything else is parsed. So nothing unknown can pass, at a
 * fraction of what parsing costs.
 */
import { isMembers } from '../wires/member-allowlist.ts'
import { bytesOf, textOf } from './sse-parser.ts'

/** Where events differ. `text` and `number` are the kinds of JSON value; a hole that is not `passed` has no place in what we make. */
export type Hole = { path: readonly (string | number)[]; kind: 'text' | 'number'; passed: boolean; counted: boolean }

export type Splicer = {
  /** The rebuilt JSON, or null when the event fits no template. `counted` texts are told to the callback, escaped as they are. */
  splice(raw: string): string | null
  /** Makes a template of an event that was just parsed. `rebuild` is called with the same event, its holes filled with marks. */
  learn(raw: string, parsed: unknown, rebuild: (event: unknown) => unknown): void
}

type Template = {
  /** Raw text before, between and after the holes; one more than `holes`. */
  raw: string[]
  holes: Hole[]
  /** What we make: text, the number of a hole, or our own sequence number. */
  made: (string | number | typeof SEQUENCE)[]
}

const SEQUENCE = Symbol('sequence')
/** Stands for our own sequence number in what `rebuild` gives. */
export const SEQUENCE_MARK = 987_654_321_987_654

const TEMPLATES = 8
/** Learning costs more than parsing: a stream whose events never look alike is parsed throughout. */
const LESSONS = 64

export function openSplicer(holes: readonly Hole[], counted: (slice: string) => void, sequence: () => number): Splicer {
  const templates: Template[] = []
  let lessons = LESSONS

  function fill({ made, holes: filled }: Template, raw: string, spans: number[]): string {
    let json = ''
    for (const part of made) {
      if (typeof part === 'string') json += part
      else if (part === SEQUENCE) json += sequence()
      else json += raw.slice(spans[part * 2], spans[part * 2 + 1])
    }
    for (let place = 0; place < filled.length; place++) {
      if (filled[place]?.counted) counted(raw.slice((spans[place * 2] ?? 0) + 1, (spans[place * 2 + 1] ?? 0) - 1))
    }
    return json
  }

  return {
    splice(raw) {
      for (const template of templates) {
        const spans = match(template, raw)
        if (!spans) continue
        if (template !== templates[0]) templates.unshift(...templates.splice(templates.indexOf(template), 1))
        return fill(template, raw, spans)
      }
      return null
    },
    learn(raw, parsed, rebuild) {
      if (lessons <= 0) return
      lessons--
      const template = templateOf(raw, parsed, holes, rebuild)
      if (!template) return
      templates.unshift(template)
      templates.length = Math.min(templates.length, TEMPLATES)
    },
  }
}

/** Start and end of each hole in `raw`, or null when anything else differs. */
function match({ raw: literals, holes }: Template, raw: string): number[] | null {
  let at = literals[0]?.length ?? 0
  if (raw.slice(0, at) !== literals[0]) return null
  const spans: number[] = []
  for (let index = 0; index < holes.length; index++) {
    const end = holes[index]?.kind === 'text' ? endOfText(raw, at) : endOfNumber(raw, at)
    const literal = literals[index + 1] ?? ''
    // Comparing slices compares memory; startsWith goes character by character.
    if (end < 0 || raw.slice(end, end + literal.length) !== literal) return null
    spans.push(at, end)
    at = end + literal.length
  }
  return at === raw.length ? spans : null
}

/** The place after a JSON string that starts at `start`, or -1 if what stands there is not a well-formed one (RFC 8259, section 7). */
function endOfText(raw: string, start: number): number {
  if (raw.charCodeAt(start) !== 0x22) return -1
  for (let at = start + 1; at < raw.length; at++) {
    const code = raw.charCodeAt(at)
    if (code === 0x22) return at + 1
    if (code < 0x20) return -1
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

const textMark = (index: number) => `<<hole ${index}>>`
const numberMark = (index: number) => 900_100_200_300_000 + index

/**
 * Puts a mark into every hole that the event has, in the raw text and in the parsed value alike; they must agree, or there is no template.
 */
function templateOf(raw: string, parsed: unknown, holes: readonly Hole[], rebuild: (event: unknown) => unknown): Template | null {
  const marked = structuredClone(parsed)
  let text = raw
  const found: { hole: Hole; encoded: string }[] = []
  for (const hole of holes) {
    const holder = holderOf(marked, hole.path)
    const key = hole.path.at(-1) ?? ''
    const value = holder?.[key]
    if (!holder || typeof value !== (hole.kind === 'text' ? 'string' : 'number')) continue
    const mark = hole.kind === 'text' ? textMark(found.length) : numberMark(found.length)
    holder[key] = mark
    const next = replaceValue(text, String(key), hole.kind, JSON.stringify(mark), marked)
    if (next === null) return null
    text = next
    found.push({ hole, encoded: JSON.stringify(mark) })
  }
  if (found.length === 0) return null
  const ordered = found.map((one) => ({ ...one, at: text.indexOf(one.encoded) })).sort((a, b) => a.at - b.at)
  const literals = cut(
    text,
    ordered.map(({ encoded }) => encoded),
  )
  const rebuilt = rebuild(marked)
  if (!literals || rebuilt === null) return null
  const json = JSON.stringify(rebuilt)
  if (ordered.some(({ hole, encoded }) => !hole.passed && json.includes(encoded))) return null
  return { raw: literals, holes: ordered.map(({ hole }) => hole), made: partsOf(json, ordered) }
}

function holderOf(value: unknown, path: readonly (string | number)[]): Record<string | number, unknown> | null {
  let holder = value
  for (const step of path.slice(0, -1)) {
    if (typeof holder !== 'object' || holder === null) return null
    holder = Array.isArray(holder) && typeof step === 'number' ? holder[step] : isMembers(holder) ? holder[step] : undefined
  }
  return isMembers(holder) ? holder : null
}

/**
 * The raw text with one value replaced, at whichever `"key":` makes it parse to `expected`; that comparison is the proof that it is the
 * right place.
 */
function replaceValue(raw: string, key: string, kind: Hole['kind'], encoded: string, expected: unknown): string | null {
  const wanted = JSON.stringify(expected)
  for (const found of raw.matchAll(new RegExp(`"${key}"\\s*:\\s*`, 'g'))) {
    const start = found.index + found[0].length
    const end = kind === 'text' ? endOfText(raw, start) : endOfNumber(raw, start)
    if (end < 0) continue
    const replaced = raw.slice(0, start) + encoded + raw.slice(end)
    if (parsesTo(replaced, wanted)) return replaced
  }
  return null
}

function parsesTo(raw: string, wanted: string): boolean {
  try {
    return JSON.stringify(JSON.parse(textOf(raw))) === wanted
  } catch {
    return false
  }
}

/** Cuts a text at marks that each occur exactly once, in this order; null otherwise. */
function cut(text: string, marks: string[]): string[] | null {
  const literals: string[] = []
  let rest = text
  for (const mark of marks) {
    const [before, after, ...more] = rest.split(mark)
    if (before === undefined || after === undefined || more.length > 0) return null
    literals.push(before)
    rest = after
  }
  return [...literals, rest]
}

function partsOf(json: string, ordered: { hole: Hole; encoded: string }[]): Template['made'] {
  let parts: Template['made'] = [bytesOf(json)]
  const split = (mark: string, part: number | typeof SEQUENCE) => {
    parts = parts.flatMap((piece) =>
      typeof piece !== 'string' ? [piece] : piece.split(mark).flatMap((text, index) => (index === 0 ? [text] : [part, text])),
    )
  }
  split(String(SEQUENCE_MARK), SEQUENCE)
  for (const [index, { hole, encoded }] of ordered.entries()) if (hole.passed) split(encoded, index)
  return parts
}
