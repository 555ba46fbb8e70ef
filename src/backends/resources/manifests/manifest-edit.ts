/** Edits one field of a document in the text of a manifest file; comments, order, quotes and whitespace stay as they are. Pure. */
import { isDeepStrictEqual } from 'node:util'
import { isMap, isNode, isScalar, parseAllDocuments, type Document, type YAMLMap } from 'yaml'
import { YAML } from '../yaml.ts'

/** `document` is the value of the document after the edit. */
export type Edited =
  { outcome: 'edited'; text: string; document: unknown } | { outcome: 'unchanged'; document: unknown } | { outcome: 'impossible' }

/** `null` removes the field. */
export type Field = { name: string; value: string | number | object | null }

/**
 * Sets or removes a field of `spec` in the document that `matches`. `impossible`: there is no such document, or the edit would change something else as well, as at an
 * anchor.
 */
export function editSpec(text: string, matches: (value: unknown) => boolean, field: Field): Edited {
  const documents = parse(text)
  const values = documents.map((document): unknown => document.toJS())
  const at = values.findIndex(matches)
  const spec = documents[at]?.get('spec', true)
  if (!isMap(spec)) return { outcome: 'impossible' }
  const wanted = values.map((value, n) => (n === at ? withField(value as Manifest, field) : value))
  const document = wanted[at]
  if (isDeepStrictEqual(wanted, values)) return { outcome: 'unchanged', document }
  const edited = spliced(text, spec, field)
  // The edited text is parsed again, which finds any other change.
  if (edited === null || !isDeepStrictEqual(valuesOf(edited), wanted)) return { outcome: 'impossible' }
  return { outcome: 'edited', text: edited, document }
}

type Manifest = { spec: Record<string, unknown> }

function withField(value: Manifest, { name, value: wanted }: Field): Manifest {
  const { [name]: _before, ...others } = value.spec
  return { ...value, spec: wanted === null ? others : { ...value.spec, [name]: wanted } }
}

function parse(text: string): Document[] {
  return [...parseAllDocuments(text, YAML)] as Document[]
}

function valuesOf(text: string): unknown[] | null {
  const documents = parse(text)
  return documents.some(({ errors }) => errors.length > 0) ? null : documents.map((document): unknown => document.toJS())
}

function spliced(text: string, spec: YAMLMap, { name, value }: Field): string | null {
  const old = spec.get(name, true)
  if (value === null) return without(text, spec, name)
  if (isNode(old)) {
    const [start, end] = old.range ?? [0, 0]
    const written = start === end ? ` ${value}` : isMap(old) ? flow(text.slice(start, end), value) : quotedAs(text.slice(start, end), value)
    return old.range ? text.slice(0, start) + written + text.slice(end) : null
  }
  const first = spec.items[0]?.key
  if (!isScalar(first) || !first.range) return null
  const [start] = first.range
  const isQuoted = text[start] === '"'
  const member = `${isQuoted ? JSON.stringify(name) : name}: ${isQuoted || typeof value === 'object' ? JSON.stringify(value) : value}`
  // Inserted before the first field, where the indentation is known and no comment of another field is in between.
  const newline = text.includes('\r\n') ? '\r\n' : '\n'
  const between = spec.flow === true ? ', ' : `${newline}${' '.repeat(start - (text.lastIndexOf('\n', start - 1) + 1))}`
  return text.slice(0, start) + member + between + text.slice(start)
}

/** A mapping as JSON, which is YAML, in place of another one with what followed it on its last line. */
function flow(old: string, value: Field['value']): string {
  return JSON.stringify(value) + (/\s+$/.exec(old)?.[0] ?? '')
}

/** The text without a field: without its lines, or in braces without its comma. */
function without(text: string, spec: YAMLMap, name: string): string | null {
  const { key, value } = spec.items.find((item) => isScalar(item.key) && item.key.value === name) ?? {}
  if (!isScalar(key) || !isNode(value) || !key.range || !value.range) return null
  const [before, after] = [text.slice(0, key.range[0]), text.slice(value.range[1])]
  if (spec.flow === true) return /^\s*,/.test(after) ? before + after.replace(/^\s*,\s*/, '') : before.replace(/,\s*$/, '') + after
  const end = text.indexOf('\n', value.range[1] - 1)
  return text.slice(0, before.lastIndexOf('\n') + 1) + (end < 0 ? '' : text.slice(end + 1))
}

/** The value in the same kind of quotes as the text that it replaces. */
function quotedAs(old: string, value: string | number | object): string {
  if (old.startsWith('"')) return JSON.stringify(value)
  return old.startsWith("'") ? `'${value}'` : String(value)
}
