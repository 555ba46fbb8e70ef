/**
 * Every setting: its default, what it may be, what it means. The only reader of the environment. `tollgate config` prints this list with the values in force,
 * `docs/configuration.md` is checked against it.
 */
import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { availableParallelism } from 'node:os'
import { join, resolve } from 'node:path'

export const ROLES = ['gateway', 'worker', 'dispatcher', 'controller', 'all'] as const
export type Role = (typeof ROLES)[number]

/** A value that a setting cannot be. `main` prints the sentence and stops. */
export class ConfigError extends Error {
  constructor(setting: string, was: string, mayBe: string) {
    super(`${setting} was ${JSON.stringify(was)}; it may be ${mayBe}.`)
    this.name = 'ConfigError'
  }
}

type Parse<T> = { mayBe: string; read(text: string): T | undefined }
type Setting<T> = { default: string; parse: Parse<T>; meaning: string; orFile?: true; secret?: true }

const oneOf = <T extends string>(values: readonly T[]): Parse<T> => ({
  mayBe: values.join(', '),
  read: (text) => values.find((value) => value === text),
})

const integer = (least: number, most: number): Parse<number> => ({
  mayBe: `a whole number from ${least} to ${most}`,
  read: (text) => (/^\d{1,9}$/.test(text) && Number(text) >= least && Number(text) <= most ? Number(text) : undefined),
})

const seconds = (least: number, most: number): Parse<number> => ({
  mayBe: `a number of seconds from ${least} to ${most}`,
  read: (text) => (/^\d{1,9}(\.\d{1,3})?$/.test(text) && Number(text) >= least && Number(text) <= most ? Math.round(Number(text) * 1000) : undefined),
})

const DAY_MS = 24 * 3600 * 1000
const days: Parse<number> = {
  mayBe: 'a number of days from 0.0001 to 3650',
  read: (text) => (/^\d{1,4}(\.\d{1,6})?$/.test(text) && Number(text) >= 0.0001 && Number(text) <= 3650 ? Math.round(Number(text) * DAY_MS) : undefined),
}

const delays: Parse<number[]> = {
  mayBe: 'one to twenty numbers of seconds, separated by commas',
  read: (text) => {
    const all = text.split(',').map((entry) => seconds(0, 86_400 * 7).read(entry.trim()))
    return all.length <= 20 && all.every((entry) => entry !== undefined) ? all : undefined
  },
}

const slots: Parse<number> = {
  mayBe: 'cores, or a whole number from 1 to 1000',
  read: (text) => (text === 'cores' ? availableParallelism() : integer(1, 1000).read(text)),
}

const list: Parse<string[]> = { mayBe: 'a list separated by commas, or empty', read: splitList }

const flag: Parse<boolean> = { mayBe: 'true or false', read: (text) => (text === 'true' ? true : text === 'false' ? false : undefined) }

const host: Parse<string> = {
  mayBe: 'an IP address or localhost',
  read: (text) => (isIP(text) > 0 || text === 'localhost' ? text : undefined),
}

const url: Parse<string | null> = {
  mayBe: 'an http or https address without path, query or fragment, or empty',
  read: (text) => {
    if (text === '') return null
    const parsed = URL.parse(text)
    if (!parsed || !['http:', 'https:'].includes(parsed.protocol) || parsed.pathname !== '/' || parsed.search || parsed.hash || parsed.username) return undefined
    return parsed.origin
  },
}

const scheme = (...schemes: string[]): Parse<string> => ({
  mayBe: schemes.map((name) => `${name}<path>`).join(' or '),
  read: (text) => (schemes.some((name) => text.startsWith(name) && text.length > name.length) ? text : undefined),
})

const path: Parse<string> = { mayBe: 'a path', read: (text) => (text === '' || text.includes('\0') ? undefined : resolve(text)) }
const optionalPath: Parse<string | null> = { mayBe: 'a path, or empty', read: (text) => (text === '' ? null : path.read(text)) }

const brand: Parse<string> = {
  mayBe: 'one to sixteen letters or digits, a letter first',
  read: (text) => (/^[A-Za-z][A-Za-z0-9]{0,15}$/.test(text) ? text : undefined),
}

const networks: Parse<string[]> = {
  mayBe: 'IP addresses or networks such as 10.0.0.0/8, separated by commas, or empty',
  read: (text) => {
    const list = splitList(text)
    return list.every((entry) => isNetwork(entry)) ? list : undefined
  },
}

/** A third-party plugin: its file, and the options that are given to it. */
export type PluginEntry = { file: string; options: Record<string, string> }

const plugins: Parse<PluginEntry[]> = {
  mayBe: 'files separated by commas, each with its options as ?name=value&name=value if it has any, or empty',
  read: (text) => {
    const all = splitList(text).map(readPlugin)
    return all.every((entry) => entry !== null) ? all : undefined
  },
}

function readPlugin(text: string): PluginEntry | null {
  const [file = '', query = '', ...rest] = text.split('?')
  const pairs = [...new URLSearchParams(query)]
  const options = Object.fromEntries(pairs)
  // An option that is given twice would be lost once.
  return file === '' || rest.length > 0 || Object.keys(options).length < pairs.length ? null : { file: resolve(file), options }
}

function splitList(text: string): string[] {
  return text.split(',').map((entry) => entry.trim()).filter((entry) => entry !== '')
}

function isNetwork(entry: string): boolean {
  const [address = '', bits, ...rest] = entry.split('/')
  const version = isIP(address)
  if (version === 0 || rest.length > 0) return false
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128))
}

const setting = <T>(value: string, parse: Parse<T>, meaning: string, more: { orFile?: true; secret?: true } = {}): Setting<T> => ({
  default: value,
  parse,
  meaning,
  ...more,
})

/** In the order of the documentation. A default may name `DATA_DIR`. */
export const SETTINGS = {
  ROLE: setting('all', oneOf(ROLES), 'Which part of the program runs; the first argument on the command line says the same.'),
  HOST: setting('127.0.0.1', host, 'Where the public listener listens: APIs, files, docs.'),
  PORT: setting('8080', integer(0, 65_535), 'Port of the public listener; 0 takes a free one.'),
  OPS_HOST: setting('127.0.0.1', host, 'Where /livez, /readyz and /metrics listen.'),
  OPS_PORT: setting('9090', integer(0, 65_535), 'Port of the operations listener; 0 takes a free one.'),
  PUBLIC_URL: setting('', url, 'How the world reaches the public listener; http://HOST:PORT when empty. Must be given when HOST is a wildcard.'),
  TRUST_PROXY: setting('', networks, 'Proxies whose X-Forwarded-* headers are believed.'),
  DATA_DIR: setting('./data', path, 'The folder for everything that the embedded side writes, mode 0700.'),
  STORE_URL: setting('sqlite:DATA_DIR/tollgate.db', scheme('sqlite:'), 'Where state lives.', { orFile: true, secret: true }),
  RESOURCES_URL: setting('files:./plans', scheme('files:'), 'Where Plans and ApiKeys are declared.'),
  SEALING_KEY_FILE: setting('DATA_DIR/sealing.key', path, 'Keys that seal API keys: 32 bytes in base64, one per line; the first seals, all open. Made at the first start of the embedded side.'),
  BRAND: setting('SVC', brand, 'Brand in header names (X-SVC-Signature) and, in lower case, in key prefixes (svc_live_).'),
  UPSTREAMS: setting('', optionalPath, 'File of the model upstreams of the Coding Plan API; the built-in echo when empty.'),
  PLAN_LIMITS: setting('', optionalPath, 'File that bounds what a Plan may grant, by namespace.'),
  BROKER_URL: setting('memory:', oneOf(['memory:']), 'The doorbell between those who queue tasks and those who run them.', { orFile: true, secret: true }),
  FILES_URL: setting('disk:DATA_DIR/files', scheme('disk:'), 'Where results lie.'),
  ENGINES: setting('', optionalPath, 'File of the engines, the routing table and the price list; the preview engine with demo prices when empty.'),
  PLUGINS: setting('', plugins, 'Third-party plugins, registered in this order.'),
  WORKER_SLOTS: setting('cores', slots, 'Tasks that one worker runs at once; as many as the machine has cores by default.'),
  EGRESS_ALLOW: setting('', list, 'Addresses, networks and hosts that the egress guard lets through, separated by commas.'),
  WEBHOOK_DELAYS_SECONDS: setting('0,30,120,600,3600', delays, 'Delay before each attempt of a webhook; their number is the number of attempts.'),
  WEBHOOK_TIMEOUT_SECONDS: setting('30', seconds(1, 300), 'Time that a webhook receiver has to answer.'),
  TASK_LEASE_SECONDS: setting('30', seconds(1, 3600), 'Time after which a worker that stopped renewing has lost its task.'),
  RESULT_DAYS: setting('7', days, 'Days that results are kept; fractions are allowed.'),
  TASK_DAYS: setting('90', days, 'Days that ended tasks are kept.'),
  LOG_LEVEL: setting('info', oneOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']), 'Least level that is logged.'),
  METRICS_TENANT: setting('false', flag, 'Adds a tenant label to the counters of usage.'),
  DRAIN_DELAY_SECONDS: setting('0', seconds(0, 3600), 'Time of normal service between not ready and no longer accepting.'),
  SHUTDOWN_SECONDS: setting('25', seconds(0, 86_400), 'Time that streams and tasks in flight get when the program stops.'),
} satisfies Record<string, Setting<unknown>>

export type SettingName = keyof typeof SETTINGS
type ValueOf<N extends SettingName> = (typeof SETTINGS)[N] extends Setting<infer T> ? T : never

/** The values in force, by the names that operators know. What is a time (`…_SECONDS`, `…_DAYS`) is in milliseconds here. */
export type Config = { [N in SettingName]: ValueOf<N> } & {
  /** Environment variables that an upstream's `apiKeyEnv` may name. */
  env: (name: string) => string | undefined
}

export type Source = 'default' | 'environment' | 'file' | 'argument'
export type Explained = { name: SettingName; value: string; default: string; source: Source; meaning: string }

/**
 * Reads all settings from the environment and the first argument. Returns them typed, and explained for `tollgate config`.
 * Throws a `ConfigError` with one sentence on the first value that makes no sense.
 */
export function readConfig(env: Record<string, string | undefined>, role?: string): { config: Config; explained: Explained[] } {
  const values: Record<string, unknown> = {}
  const explained: Explained[] = []
  const dataDir = env['DATA_DIR'] || SETTINGS.DATA_DIR.default
  for (const [name, entry] of Object.entries<Setting<unknown>>(SETTINGS)) {
    const fallback = entry.default.replace('DATA_DIR', dataDir)
    const { text, source } = name === 'ROLE' && role !== undefined ? { text: role, source: 'argument' as const } : given(env, name, entry, fallback)
    const value = entry.parse.read(text)
    if (value === undefined) throw new ConfigError(name, entry.secret ? withoutPassword(text) : text, entry.parse.mayBe)
    values[name] = value
    explained.push({ name: name as SettingName, value: entry.secret ? withoutPassword(text) : text, default: entry.default, source, meaning: entry.meaning })
  }
  const config = { ...values, env: (name: string) => env[name] } as Config
  refuseNonsense(config)
  return { config, explained }
}

function given(env: Record<string, string | undefined>, name: string, entry: Setting<unknown>, fallback: string): { text: string; source: Source } {
  const file = entry.orFile ? env[`${name}_FILE`] : undefined
  const text = env[name]
  if (file !== undefined && text !== undefined) throw new ConfigError(`${name}_FILE`, file, `left out when ${name} is given`)
  if (file !== undefined) return { text: readSetting(`${name}_FILE`, file), source: 'file' }
  // An empty variable counts as not given: compose files and charts pass those on.
  return text === undefined || text === '' ? { text: fallback, source: 'default' } : { text, source: 'environment' }
}

function readSetting(name: string, file: string): string {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch {
    throw new ConfigError(name, file, 'a file that can be read')
  }
}

function withoutPassword(text: string): string {
  return text.replace(/(\/\/[^:@/]*):[^@/]*@/, '$1:***@')
}

const WILDCARDS = ['0.0.0.0', '::']

function refuseNonsense(config: Config): void {
  if (config.ROLE !== 'all' && config.STORE_URL.startsWith('sqlite:')) {
    throw new ConfigError('ROLE', config.ROLE, 'all while STORE_URL is sqlite: a split role needs a store that processes share')
  }
  if (WILDCARDS.includes(config.HOST) && config.PUBLIC_URL === null) {
    throw new ConfigError('PUBLIC_URL', '', `the address under which the world reaches us, because HOST is ${config.HOST}`)
  }
  if (config.PORT !== 0 && config.PORT === config.OPS_PORT && config.HOST === config.OPS_HOST) {
    throw new ConfigError('OPS_PORT', String(config.OPS_PORT), 'another port than PORT: operations never share the public listener')
  }
}

/** Where the embedded side keeps a tenant's Secrets and status files. */
export function embeddedPaths(dataDir: string): { secrets: string; status: string } {
  return { secrets: join(dataDir, 'secrets'), status: join(dataDir, 'status') }
}
