/**
 * Settings files (UPSTREAMS, ENGINES, PLAN_LIMITS, PROXY_ROUTES): parses YAML or JSON and validates it against a schema. Pure: text in; the value, or the
 * first fault with its line, out.
 */
import { Ajv } from 'ajv'
import type { Static, TSchema } from 'typebox'
import { isMap, isScalar, LineCounter, parseDocument, type Document } from 'yaml'
import { paramOf, stepsOf } from './errors.ts'
import { faultsOf } from './request-validation.ts'

/** The path to a member of the file. */
export type Place = (string | number)[]

export type SettingsFile<T> =
  | {
      outcome: 'read'
      /** With the defaults of the schema. */
      value: T
      /** The line of a member, or of its nearest existing ancestor. */
      lineOf(place: Place): number
    }
  | { outcome: 'refused'; line: number; /** The place in words, and what is wrong with it: part of a sentence. */ what: string }

/** More aliases than this are an attempt to exhaust memory. */
const MOST_ALIASES = 100

const schemas = new Ajv({ allErrors: true, useDefaults: true, strict: false, meta: false, validateSchema: false })

/** Parses the text. Of several faults an unknown member comes first, since it may be a misspelled required one; then the deepest. */
export function readSettingsFile<S extends TSchema>(schema: S, text: string): SettingsFile<Static<S>> {
  const lines = new LineCounter()
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: true })
  const [broken] = document.errors
  if (broken)
    return {
      outcome: 'refused',
      line: lines.linePos(broken.pos[0]).line,
      what: broken.code === 'MULTIPLE_DOCS' ? 'the file must be one YAML document' : firstSentence(broken.message),
    }
  let value: unknown
  try {
    value = document.toJS({ maxAliasCount: MOST_ALIASES })
  } catch (error) {
    return { outcome: 'refused', line: 1, what: firstSentence((error as Error).message) }
  }
  const lineOf = (place: Place) => lineAt(document, lines, place)
  const valid = schemas.compile<Static<S>>(schema)
  if (valid(value)) return { outcome: 'read', value, lineOf }
  const [worst] = faultsOf(valid.errors ?? [])
    .map(({ path, code, message }) => ({ place: stepsOf(path), isUnknown: code === 'additionalProperties', message }))
    .sort((a, b) => Number(b.isUnknown) - Number(a.isUnknown) || b.place.length - a.place.length)
  const place = worst?.place ?? []
  return {
    outcome: 'refused',
    line: lineOf(place),
    what: `${shown(place)} ${worst?.isUnknown ? 'is not a setting' : (worst?.message ?? 'is not valid')}`,
  }
}

/** A settings file is invalid: one sentence with the line. */
export class SettingsFileError extends Error {
  constructor(setting: string, file: string, line: number | null, problem: string) {
    super(`${setting} ${file}${line === null ? '' : `, line ${line}`}: ${problem}.`)
    this.name = 'SettingsFileError'
  }
}

/** The value of the file of `setting`, and the lines of its members. Throws a `SettingsFileError`, and so does `fail`, for a fault that no schema sees. */
export function parseSettingsFile<S extends TSchema>(setting: string, file: string, schema: S, text: string) {
  const read = readSettingsFile(schema, text)
  if (read.outcome === 'refused') throw new SettingsFileError(setting, file, read.line, read.what)
  const fail = (place: Place, problem: string): never => {
    throw new SettingsFileError(setting, file, read.lineOf(place), `${shown(place)} ${problem}`)
  }
  return { value: read.value, lineOf: read.lineOf, fail }
}

/** For a rejected read of the file of `setting`: throws a `SettingsFileError`. */
export const unreadable =
  (setting: string, file: string) =>
  ({ code = 'error' }: NodeJS.ErrnoException): never => {
    throw new SettingsFileError(setting, file, null, `cannot be read (${code})`)
  }

/** Where API keys are read from. `readFile` takes a path as its settings file has it, relative to that, and throws when it cannot be read. */
export type KeySources = { env(name: string): string | undefined; readFile(path: string): string }

/** The members that give an entry its API key: itself, the file that holds it, or the environment variable. */
type KeyMembers = { apiKey?: string; apiKeyFile?: string; apiKeyEnv?: string }

/** The API key of an entry; null if it has none. `fail` gets a member that is at fault, and what is wrong with it, without the key. */
export function readKey(entry: KeyMembers, keys: KeySources, fail: (member: string, problem: string) => never): string | null {
  const [member, other] = (['apiKey', 'apiKeyFile', 'apiKeyEnv'] as const).filter((name) => entry[name] !== undefined)
  if (member === undefined) return null
  if (other) fail(other, `cannot be combined with ${member}`)
  const given = entry[member] ?? ''
  let key = given
  try {
    if (member === 'apiKeyFile') key = keys.readFile(given).trim()
  } catch (error) {
    fail(member, `cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`)
  }
  if (member === 'apiKeyEnv') key = keys.env(given) || fail(member, `names ${given}, which is not set`)
  return /^[\x21-\x7e]+$/.test(key) ? key : fail(member, 'must be a key of visible ASCII characters')
}

const shown = (place: Place): string => paramOf(place) ?? 'the file'

/** The line of a member, from 1; for a missing one, that of its nearest existing ancestor. */
export function lineAt(document: Document.Parsed, lines: LineCounter, place: Place): number {
  const name = nameAt(document, place)
  if (name) return lines.linePos(name[0]).line
  for (let depth = place.length; depth >= 0; depth--) {
    const node = depth === 0 ? document.contents : document.getIn(place.slice(0, depth), true)
    const range = (node as { range?: Range | null } | null | undefined)?.range
    if (range && !(isMap(node) && node.items.length === 0)) return lines.linePos(range[0]).line
  }
  return 1
}

type Range = [number, number, number]

/** The position of a member's name: its value may begin on the next line. */
function nameAt(document: Document.Parsed, place: Place): Range | null {
  const around = place.length === 1 ? document.contents : document.getIn(place.slice(0, -1), true)
  if (place.length === 0 || !isMap(around)) return null
  const key = around.items.map((item) => item.key).find((candidate) => isScalar(candidate) && candidate.value === place.at(-1))
  return isScalar(key) ? (key.range ?? null) : null
}

function firstSentence(message: string): string {
  return (message.split('\n', 1)[0] ?? message).replace(/ at line \d+, column \d+:?$/, '').replace(/[.:]\s*$/, '')
}
