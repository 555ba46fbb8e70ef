/** Makes a template of an event: puts marks into its placeholders, rebuilds it, and splits both at the marks. */
import { isMembers } from '../wires/allowlist.ts'
import type { SealingIds } from '../wires/encrypted-ids.ts'
import { endOf, type TokenKind } from './json-tokens.ts'
import { bytesOf, textOf } from './sse-parser.ts'

/**
 * A member whose value differs between events. Its JSON type is `kind`; an `id` is encrypted. `forwarded`: the client gets it. `metered`: it is output of
 * the model.
 */
export type Placeholder = { path: readonly (string | number)[]; kind: TokenKind; forwarded: boolean; metered: boolean }

/** Stand for the values of a stream in the result of `rebuild`. */
export const OWN_MARKS = { id: '<<own id>>', created: 987_654_321_987_653, sequence: 987_654_321_987_654 } as const
export type OwnName = keyof typeof OWN_MARKS

/** Text, the index of a placeholder, a value of the stream, or an encrypted id. */
export type Part = string | number | { own: OwnName } | { prefix: string; of: number }

/** The bytes of an event and its result. */
export type Template = {
  /** Raw text before, between and after the placeholders; one more than there are placeholders. */
  raw: string[]
  placeholders: Placeholder[]
  result: Part[]
}

const textMark = (index: number) => `<<placeholder ${index}>>`
const numberMark = (index: number) => 900_100_200_300_000 + index
/** Whether a text stands for the value of a placeholder. */
export const isMark = (text: string): boolean => text.startsWith('<<placeholder ')
const encryptedMark = (prefix: string, index: number) => `<<encrypted ${prefix} ${index}>>`
const ENCRYPTED_MARK = /"<<encrypted ([a-z]+_) (\d+)>>"/

/** Puts a mark into every placeholder of the event, in the raw text and in the parsed value; null unless both agree. */
export function templateOf(
  raw: string,
  parsed: unknown,
  placeholders: readonly Placeholder[],
  rebuild: (event: unknown, ids: SealingIds) => unknown,
): Template | null {
  const marked = structuredClone(parsed)
  let text = raw
  const found: Found[] = []
  for (const placeholder of placeholders) {
    const holder = holderOf(marked, placeholder.path)
    const key = placeholder.path.at(-1) ?? ''
    const value = holder?.[key]
    if (!holder || typeof value !== (placeholder.kind === 'number' ? 'number' : 'string') || (placeholder.kind === 'id' && value === ''))
      continue
    const mark = placeholder.kind === 'number' ? numberMark(found.length) : textMark(found.length)
    holder[key] = mark
    const next = replaceValue(text, String(key), placeholder.kind, JSON.stringify(mark), marked)
    if (next === null) return null
    text = next
    found.push({ placeholder, encoded: JSON.stringify(mark) })
  }
  if (found.length === 0 || looksMarked(JSON.stringify(marked), found)) return null
  const ordered = found.map((one) => ({ ...one, at: text.indexOf(one.encoded) })).sort((a, b) => a.at - b.at)
  const literals = splitAt(
    text,
    ordered.map(({ encoded }) => encoded),
  )
  const ids = markingIds(ordered)
  const rebuilt = rebuild(marked, ids)
  if (!literals || rebuilt === null || ids.isUsed()) return null
  const json = JSON.stringify(rebuilt)
  if (ordered.some(({ placeholder, encoded }) => (!placeholder.forwarded || placeholder.kind === 'id') && json.includes(encoded)))
    return null
  return { raw: literals, placeholders: ordered.map(({ placeholder }) => placeholder), result: partsOf(json, ordered) }
}

/** Whether the event itself has text that looks like a mark. */
function looksMarked(json: string, found: Found[]): boolean {
  const texts = found.filter(({ placeholder }) => placeholder.kind !== 'number').length
  return json.split('<<').length - 1 !== texts || Object.values(OWN_MARKS).some((mark) => json.includes(String(mark)))
}

type Found = { placeholder: Placeholder; encoded: string }

/** Ids that leave a mark for an id in a placeholder. Any other id belongs to one stream and subscription: an event that has one is no template. */
function markingIds(ordered: Found[]): SealingIds & { isUsed(): boolean } {
  let used = false
  const use = () => {
    used = true
    return ''
  }
  return {
    encrypt(prefix, id) {
      const index = ordered.findIndex(({ placeholder, encoded }) => placeholder.kind === 'id' && encoded === JSON.stringify(id))
      return index < 0 ? use() : encryptedMark(prefix, index)
    },
    seal: use,
    fresh: use,
    isUsed: () => used,
  }
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
    const end = endOf(kind, raw, start)
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

function partsOf(json: string, ordered: Found[]): Part[] {
  let parts: Part[] = [bytesOf(json)]
  const split = (mark: string | RegExp, part: (matched: string[]) => Part) => {
    parts = parts.flatMap((piece) => (typeof piece === 'string' ? splitPiece(piece, mark, part) : [piece]))
  }
  for (const [name, mark] of Object.entries(OWN_MARKS)) split(JSON.stringify(mark), () => ({ own: name as OwnName }))
  for (const [index, { placeholder, encoded }] of ordered.entries())
    if (placeholder.forwarded && placeholder.kind !== 'id') split(encoded, () => index)
  split(ENCRYPTED_MARK, ([, prefix = '', index]) => ({ prefix, of: Number(index) }))
  return parts
}

/** The piece with each occurrence of the mark replaced by its part. */
function splitPiece(piece: string, mark: string | RegExp, part: (matched: string[]) => Part): Part[] {
  const parts: Part[] = []
  let rest = piece
  for (;;) {
    const matched = typeof mark === 'string' ? { at: rest.indexOf(mark), groups: [mark] } : matchOf(rest, mark)
    if (matched.at < 0) return [...parts, rest]
    parts.push(rest.slice(0, matched.at), part(matched.groups))
    rest = rest.slice(matched.at + (matched.groups[0]?.length ?? 0))
  }
}

function matchOf(text: string, mark: RegExp): { at: number; groups: string[] } {
  const found = mark.exec(text)
  return found ? { at: found.index, groups: [...found] } : { at: -1, groups: [] }
}
