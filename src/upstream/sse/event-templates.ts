/**
 * Rewrites most events of a stream without parsing them. An event that was parsed and rebuilt becomes a template: its bytes and its result,
 * both with placeholders for the text. A later event that is byte for byte equal outside of the placeholders, and has a well-formed value in
 * each, is rewritten by copying its values into the result. Any other event is parsed. So nothing unknown can pass, at a fraction of the cost
 * of parsing.
 */
import { isUtf8 } from 'node:buffer'
import { isMembers } from '../wires/allowlist.ts'
import { bytesOf, textOf } from './sse-parser.ts'

/** A member whose value differs between events. Its JSON type is `kind`. `forwarded`: the client gets it. `metered`: it is output of the model. */
export type Placeholder = { path: readonly (string | number)[]; kind: 'text' | 'number'; forwarded: boolean; metered: boolean }

export type EventTemplates = {
  /** The rewritten JSON, or null when the event matches no template. */
  rewrite(raw: string): string | null
  /** Makes a template of an event that was just parsed. `rebuild` is called with the same event, marks in its placeholders. */
  learn(raw: string, parsed: unknown, rebuild: (event: unknown) => unknown): void
}

type Template = {
  /** Raw text before, between and after the placeholders; one more than there are placeholders. */
  raw: string[]
  placeholders: Placeholder[]
  /** The result: text, the index of a placeholder, or our own sequence number. */
  result: (string | number | typeof SEQUENCE)[]
}

const SEQUENCE = Symbol('sequence')
/** Stands for our own sequence number in the result of `rebuild`. */
export const SEQUENCE_MARK = 987_654_321_987_654

const MAX_TEMPLATES = 8
/** Learning costs more than parsing: a stream whose events match no template is parsed throughout. */
const MAX_LEARNED = 64

/** `meter` gets each metered text as it stands between its quotes; `sequence` returns the next sequence number. */
export function openEventTemplates(
  placeholders: readonly Placeholder[],
  meter: (slice: string) => void,
  sequence: () => number,
): EventTemplates {
  const templates: Template[] = []
  let learned = 0

  function fill({ result, placeholders: filled }: Template, raw: string, spans: number[]): string {
    let json = ''
    for (const part of result) {
      if (typeof part === 'string') json += part
      else if (part === SEQUENCE) json += sequence()
      else json += raw.slice(spans[part * 2], spans[part * 2 + 1])
    }
    for (let index = 0; index < filled.length; index++) {
      if (filled[index]?.metered) meter(raw.slice((spans[index * 2] ?? 0) + 1, (spans[index * 2 + 1] ?? 0) - 1))
    }
    return json
  }

  return {
    rewrite(raw) {
      for (const template of templates) {
        const spans = match(template, raw)
        if (!spans) continue
        if (template !== templates[0]) templates.unshift(...templates.splice(templates.indexOf(template), 1))
        return fill(template, raw, spans)
      }
      return null
    },
    learn(raw, parsed, rebuild) {
      if (learned >= MAX_LEARNED) return
      learned++
      const template = templateOf(raw, parsed, placeholders, rebuild)
      if (!template) return
      templates.unshift(template)
      templates.length = Math.min(templates.length, MAX_TEMPLATES)
    },
  }
}

/** Start and end of each placeholder in `raw`, or null when anything else differs. */
function match({ raw: literals, placeholders }: Template, raw: string): number[] | null {
  let at = literals[0]?.length ?? 0
  if (raw.slice(0, at) !== literals[0]) return null
  const spans: number[] = []
  for (let index = 0; index < placeholders.length; index++) {
    const end = placeholders[index]?.kind === 'text' ? endOfText(raw, at) : endOfNumber(raw, at)
    const literal = literals[index + 1] ?? ''
    // Comparing slices compares memory; startsWith goes character by character.
    if (end < 0 || raw.slice(end, end + literal.length) !== literal) return null
    spans.push(at, end)
    at = end + literal.length
  }
  return at === raw.length ? spans : null
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

const textMark = (index: number) => `<<placeholder ${index}>>`
const numberMark = (index: number) => 900_100_200_300_000 + index

/** Puts a mark into every placeholder of the event, in the raw text and in the parsed value; null unless both agree. */
function templateOf(raw: string, parsed: unknown, placeholders: readonly Placeholder[], rebuild: (event: unknown) => unknown): Template | null {
  const marked = structuredClone(parsed)
  let text = raw
  const found: { placeholder: Placeholder; encoded: string }[] = []
  for (const placeholder of placeholders) {
    const holder = holderOf(marked, placeholder.path)
    const key = placeholder.path.at(-1) ?? ''
    const value = holder?.[key]
    if (!holder || typeof value !== (placeholder.kind === 'text' ? 'string' : 'number')) continue
    const mark = placeholder.kind === 'text' ? textMark(found.length) : numberMark(found.length)
    holder[key] = mark
    const next = replaceValue(text, String(key), placeholder.kind, JSON.stringify(mark), marked)
    if (next === null) return null
    text = next
    found.push({ placeholder, encoded: JSON.stringify(mark) })
  }
  if (found.length === 0) return null
  const ordered = found.map((one) => ({ ...one, at: text.indexOf(one.encoded) })).sort((a, b) => a.at - b.at)
  const literals = splitAt(
    text,
    ordered.map(({ encoded }) => encoded),
  )
  const rebuilt = rebuild(marked)
  if (!literals || rebuilt === null) return null
  const json = JSON.stringify(rebuilt)
  if (ordered.some(({ placeholder, encoded }) => !placeholder.forwarded && json.includes(encoded))) return null
  return { raw: literals, placeholders: ordered.map(({ placeholder }) => placeholder), result: partsOf(json, ordered) }
}

function holderOf(value: unknown, path: readonly (string | number)[]): Record<string | number, unknown> | null {
  let holder = value
  for (const step of path.slice(0, -1)) {
    if (typeof holder !== 'object' || holder === null) return null
    holder = Array.isArray(holder) && typeof step === 'number' ? holder[step] : isMembers(holder) ? holder[step] : undefined
  }
  return isMembers(holder) ? holder : null
}

/** Replaces one value in the raw text, at the `"key":` for which the result parses to `expected`; null if there is none. */
function replaceValue(raw: string, key: string, kind: Placeholder['kind'], encoded: string, expected: unknown): string | null {
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

/** Splits a text at marks that each occur exactly once, in this order; null otherwise. */
function splitAt(text: string, marks: string[]): string[] | null {
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

function partsOf(json: string, ordered: { placeholder: Placeholder; encoded: string }[]): Template['result'] {
  let parts: Template['result'] = [bytesOf(json)]
  const split = (mark: string, part: number | typeof SEQUENCE) => {
    parts = parts.flatMap((piece) =>
      typeof piece !== 'string' ? [piece] : piece.split(mark).flatMap((text, index) => (index === 0 ? [text] : [part, text])),
    )
  }
  split(String(SEQUENCE_MARK), SEQUENCE)
  for (const [index, { placeholder, encoded }] of ordered.entries()) if (placeholder.forwarded) split(encoded, index)
  return parts
}
