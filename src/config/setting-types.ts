/** Types of settings: how each is parsed from text, and the sentence for an invalid value. */
import { isIP } from 'node:net'
import { availableParallelism, totalmem } from 'node:os'
import { resolve } from 'node:path'

/** An invalid setting. `main` prints the sentence and exits. */
export class ConfigError extends Error {
  constructor(setting: string, was: string, mayBe: string) {
    super(`${setting} was ${JSON.stringify(was)}; it must be ${mayBe}.`)
    this.name = 'ConfigError'
  }
}

/** `schema`: what JSON Schema can check of a value in YAML, for the values of the Helm chart; any scalar when absent. */
export type Parse<T> = { mayBe: string; schema?: Record<string, unknown>; read(text: string): T | undefined }

/** One of these words. */
export const oneOf = <T extends string>(values: readonly T[]): Parse<T> => ({
  mayBe: values.join(', '),
  schema: { enum: values },
  read: (text) => values.find((value) => value === text),
})

/** Schema of a list separated by commas, by the regular expression of an entry. */
const listOf = (entry: string): Record<string, unknown> => ({ type: 'string', pattern: `^[\\s,]*((${entry})\\s*(,[\\s,]*|$))*$` })

/** A number that is written as `pattern` has it, times `factor` and rounded. */
const numeric = (what: string, pattern: RegExp, least: number, most: number, factor = 1): Parse<number> => ({
  mayBe: `a ${what} from ${least} to ${most}`,
  schema: { type: ['number', 'string'], minimum: least, maximum: most, pattern: pattern.source },
  read: (text) => (pattern.test(text) && Number(text) >= least && Number(text) <= most ? Math.round(Number(text) * factor) : undefined),
})

/** A whole number of at most nine digits, between both bounds. */
export const integer = (least: number, most: number): Parse<number> => numeric('whole number', /^\d{1,9}$/, least, most)

/** Seconds with up to three decimals, between both bounds. The value is in milliseconds. */
export const seconds = (least: number, most: number): Parse<number> =>
  numeric('number of seconds', /^\d{1,9}(\.\d{1,3})?$/, least, most, 1000)

const HOUR_MS = 3600 * 1000
export const hours = numeric('number of hours', /^\d{1,4}(\.\d{1,4})?$/, 0.25, 8760, HOUR_MS)

export const daysOrNone: Parse<number> = {
  mayBe: '0, or a number of days from 1 to 3650',
  schema: { type: ['integer', 'string'], minimum: 0, maximum: 3650, pattern: '^\\d{1,4}$' },
  read: (text) => (text === '0' ? 0 : numeric('', /^\d{1,4}$/, 1, 3650, 24 * HOUR_MS).read(text)),
}

export const days = numeric('number of days', /^\d{1,4}(\.\d{1,6})?$/, 0.0001, 3650, 24 * HOUR_MS)

export const delays: Parse<number[]> = {
  mayBe: 'one to twenty numbers of seconds, separated by commas',
  schema: { type: ['number', 'string'], minimum: 0, pattern: '^[\\d., ]+$' },
  read: (text) => {
    const all = text.split(',').map((entry) => seconds(0, 86_400 * 7).read(entry.trim()))
    return all.length <= 20 && all.every((entry) => entry !== undefined) ? all : undefined
  },
}

export const slots: Parse<number> = {
  mayBe: 'cores, or a whole number from 1 to 1000',
  read: (text) => (text === 'cores' ? availableParallelism() : integer(1, 1000).read(text)),
}

/** MiB. A quarter of the memory that this process may have, at most 256. */
export const memoryShare: Parse<number> = {
  mayBe: 'auto, or whole MiB from 16 to 65536',
  schema: { type: ['integer', 'string'], minimum: 16, maximum: 65_536, pattern: '^(auto|\\d{2,5})$' },
  read: (text) =>
    text === 'auto'
      ? Math.floor(Math.min(256, Math.min(process.constrainedMemory() || Infinity, totalmem()) / 4 / 1024 ** 2))
      : integer(16, 65_536).read(text),
}

export const list: Parse<string[]> = {
  mayBe: 'a list separated by commas, or empty',
  schema: listOf('[A-Za-z0-9_:][A-Za-z0-9_.:/-]*'),
  read: splitList,
}

const MODEL = '[A-Za-z0-9*][A-Za-z0-9._:/@*-]{0,99}'
const MODEL_PATTERN = new RegExp(`^${MODEL}$`)

export const modelPatterns: Parse<string[]> = {
  mayBe: 'names of models separated by commas, in which * stands for any text, or empty',
  schema: listOf(MODEL),
  read: (text) => {
    const patterns = splitList(text)
    return patterns.every((pattern) => MODEL_PATTERN.test(pattern) && pattern.split('*').length <= 4) ? patterns : undefined
  },
}

export const origins: Parse<string[]> = {
  mayBe: 'origins such as https://app.example separated by commas, *, or empty',
  schema: listOf('\\*|https?://[^\\s,/]+'),
  read: (text) => {
    const entries = splitList(text)
    return entries.every((entry) => entry === '*' || (/^https?:/.test(entry) && URL.parse(entry)?.origin === entry)) ? entries : undefined
  },
}

export const flag: Parse<boolean> = {
  mayBe: 'true or false',
  schema: { enum: [true, false, 'true', 'false'] },
  read: (text) => (text === 'true' ? true : text === 'false' ? false : undefined),
}

export const host: Parse<string> = {
  mayBe: 'an IP address or localhost',
  read: (text) => (isIP(text) > 0 || text === 'localhost' ? text : undefined),
}

export const url: Parse<string | null> = {
  mayBe: 'an http or https address without path, query or fragment, or empty',
  read: (text) => {
    if (text === '') return null
    const parsed = URL.parse(text)
    if (
      !parsed ||
      !['http:', 'https:'].includes(parsed.protocol) ||
      parsed.pathname !== '/' ||
      parsed.search ||
      parsed.hash ||
      parsed.username
    )
      return undefined
    return parsed.origin
  },
}

/** An OpenID Connect issuer: https, or http on loopback. Its path is part of its name (OpenID Connect Discovery 1.0, section 2). */
export const issuer: Parse<string | null> = {
  mayBe: 'an https address without query or fragment (http on loopback only), or empty',
  read: (text) => {
    if (text === '') return null
    const parsed = URL.parse(text)
    if (!parsed || parsed.search || parsed.hash || parsed.username || parsed.password) return undefined
    return parsed.protocol === 'https:' || (parsed.protocol === 'http:' && isLoopback(parsed.hostname)) ? text : undefined
  },
}

/** Whether a host name or IP address is this machine's loopback. */
export function isLoopback(name: string): boolean {
  return name === 'localhost' || name === '::1' || name === '[::1]' || (isIP(name) === 4 && name.startsWith('127.'))
}

export const text: Parse<string> = {
  mayBe: 'any text without control characters',
  schema: { type: 'string' },
  read: (given) => (/\p{Cc}/u.test(given) ? undefined : given),
}

/** Backend addresses such as `sqlite:<path>` or `kubernetes:`; a part in angle brackets is required. The adapter validates everything after the scheme. */
export const address = (...forms: string[]): Parse<string> => ({
  mayBe: forms.join(' or '),
  read: (text) => {
    const isOf = (form: string) => {
      const [scheme = '', ...rest] = form.split('<')
      return rest.length === 0 ? text === scheme : text.startsWith(scheme) && text.length > scheme.length
    }
    return forms.some(isOf) && !text.includes('\0') ? text : undefined
  },
})

export const path: Parse<string> = { mayBe: 'a path', read: (text) => (text === '' || text.includes('\0') ? undefined : resolve(text)) }
export const optionalPath: Parse<string | null> = { mayBe: 'a path, or empty', read: (text) => (text === '' ? null : path.read(text)) }

const BRAND = /^[A-Za-z][A-Za-z0-9]{0,15}$/
export const brand: Parse<string> = {
  mayBe: 'one to sixteen letters or digits, a letter first',
  schema: { type: 'string', pattern: BRAND.source },
  read: (text) => (BRAND.test(text) ? text : undefined),
}

export const networks: Parse<string[]> = {
  mayBe: 'IP addresses or networks such as 10.0.0.0/8, separated by commas, or empty',
  schema: listOf('[0-9A-Fa-f:][0-9A-Fa-f.:]+(/\\d{1,3})?'),
  read: (text) => {
    const entries = splitList(text)
    return entries.every((entry) => isNetwork(entry)) ? entries : undefined
  },
}

/** A third-party plugin: its file and its options. */
export type PluginEntry = { file: string; options: Record<string, string> }

export const plugins: Parse<PluginEntry[]> = {
  mayBe: 'files separated by commas, each with its options as ?name=value&name=value if it has any, or empty',
  schema: { type: 'string' },
  read: (text) => {
    const all = splitList(text).map(readPlugin)
    return all.every((entry) => entry !== null) ? all : undefined
  },
}

function readPlugin(text: string): PluginEntry | null {
  const [file = '', query = '', ...rest] = text.split('?')
  const pairs = [...new URLSearchParams(query)]
  const options = Object.fromEntries(pairs)
  // An option that is given twice would silently lose one value.
  return file === '' || rest.length > 0 || Object.keys(options).length < pairs.length ? null : { file: resolve(file), options }
}

function splitList(text: string): string[] {
  return text
    .split(',')
    .map((entry) => entry.trim())
    .filter((entry) => entry !== '')
}

function isNetwork(entry: string): boolean {
  const [ip = '', bits, ...rest] = entry.split('/')
  const version = isIP(ip)
  if (version === 0 || rest.length > 0) return false
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128))
}
