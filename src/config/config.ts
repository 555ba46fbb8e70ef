/**
 * Settings: every environment variable with its default, type and meaning. The only reader of the environment. `tollgate config` prints the values in force;
 * `docs/configuration.md` is generated from this list.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { DASHBOARD_MODES } from './dashboard-mode.ts'
import { misspelledSettings } from './misspelled-settings.ts'
import { refuseContradictions } from './startup-checks.ts'
import { ROLES } from './needed-backends.ts'
import {
  address,
  brand,
  ConfigError,
  days,
  daysOrNone,
  delays,
  flag,
  host,
  hours,
  integer,
  issuer,
  list,
  memoryShare,
  modelPatterns,
  networks,
  oneOf,
  optionalPath,
  origins,
  path,
  plugins,
  seconds,
  slots,
  text,
  url,
  type Parse,
} from './setting-types.ts'

/** `secret`: `password` hides the passwords in an address, `whole` the value. */
type More = { orFile?: true; secret?: 'password' | 'whole' }
type Setting<T> = { default: string; parse: Parse<T>; meaning: string } & More

const setting = <T>(value: string, parse: Parse<T>, meaning: string, more: More = {}): Setting<T> => ({
  default: value,
  parse,
  meaning,
  ...more,
})

/** In the order of the documentation. A default may name `DATA_DIR`. */
export const SETTINGS = {
  ROLE: setting('all', oneOf(ROLES), 'Which part of the program runs; the first command-line argument overrides it.'),
  HOST: setting('127.0.0.1', host, 'Address of the public listener: APIs, files, docs.'),
  PORT: setting('8080', integer(0, 65_535), 'Port of the public listener; 0 picks a free one.'),
  OPS_HOST: setting('127.0.0.1', host, 'Address of the operations listener: /livez, /readyz, /metrics.'),
  OPS_PORT: setting('9090', integer(0, 65_535), 'Port of the operations listener; 0 picks a free one.'),
  PUBLIC_URL: setting(
    '',
    url,
    'Address at which clients reach the public listener; http://HOST:PORT when empty. Required when HOST is a wildcard, and in the role worker.',
  ),
  TRUST_PROXY: setting('', networks, 'Proxies whose X-Forwarded-* headers are trusted.'),
  DATA_DIR: setting('./data', path, 'Folder for everything that the embedded side writes, mode 0700.'),
  STORE_URL: setting('sqlite:DATA_DIR/tollgate.db', address('sqlite:<path>', 'mongodb://<host>', 'mongodb+srv://<host>'), 'The store.', {
    orFile: true,
    secret: 'password',
  }),
  RESOURCES_URL: setting(
    'files:./plans',
    address('files:<path>', 'kubernetes:', 'kubernetes:?<parameters>'),
    'Source of Plans and ApiKeys. Parameters, joined by &: namespace, separated by commas (all namespaces when absent); kubeconfig, a path (not needed in a pod); lease and leaseNamespace, the Lease for leader election.',
  ),
  SEALING_KEY_FILE: setting(
    'DATA_DIR/sealing.key',
    path,
    'File of the sealing keys of API keys: 32 bytes in base64, one per line; the first encrypts, all of them decrypt. Created at the first start of the embedded side, required where processes share a store.',
  ),
  DERIVED_KEYS_FILE: setting(
    '',
    optionalPath,
    'Instead of SEALING_KEY_FILE in the roles gateway and worker: file of the keys that `tollgate derive-keys` derives from it. They sign links to results and encrypt ids, but cannot decrypt API keys, so the dashboard of such a gateway cannot reveal them.',
  ),
  BRAND: setting('SVC', brand, 'Brand in header names (X-SVC-Signature) and, in lower case, in key prefixes (svc_live_).'),
  UPSTREAMS: setting(
    '',
    optionalPath,
    'File of the model upstreams of the Coding Plan API; the built-in echo when empty, on the embedded side only.',
  ),
  IMAGE_URLS: setting(
    'vet',
    oneOf(['vet', 'fetch', 'refuse'] as const),
    'http addresses of images and files in coding requests. vet: upstreams fetch them, after the egress guard has checked where they lead; fetch: the gateway fetches them through the egress guard and sends the data; refuse: only data: addresses are accepted.',
  ),
  MODEL_ALIASES: setting(
    '',
    modelPatterns,
    'Names that clients may use for svc-code, such as claude-*,gpt-5*: for programs whose model cannot be set. Answers name svc-code.',
  ),
  CORS_ORIGINS: setting(
    '',
    origins,
    'Origins of web pages that may call /v1 from a browser; * for any. Anyone who opens a page that holds an API key can read the key.',
  ),
  PLAN_LIMITS: setting('', optionalPath, 'File of limits on what a Plan may grant, by namespace.'),
  PLAN_LEASES: setting(
    'true',
    flag,
    'Over MongoDB: gateways admit the requests of a busy coding plan by leases on its windows, and write many at once. No answer is sent before its admission is stored; with false, no request is sent to a model before that either.',
  ),
  BROKER_URL: setting('memory:', address('memory:', 'kafka://<host>:<port>'), 'The broker to which tasks are published for workers.', {
    orFile: true,
    secret: 'password',
  }),
  FILES_URL: setting(
    'disk:DATA_DIR/files',
    address('disk:<path>', 'gridfs:', 's3://<bucket>'),
    'Where results are stored; gridfs: uses the MongoDB of STORE_URL.',
  ),
  ENGINES: setting(
    '',
    optionalPath,
    'File of the engines, the routing table and the price list; built-in engines with demo prices when empty, on the embedded side only.',
  ),
  PROXY_ROUTES: setting('', optionalPath, 'File of the pass-through routes: HTTP services behind a key and a plan; none when empty.'),
  DASHBOARD: setting(
    'auto',
    oneOf(['auto', ...DASHBOARD_MODES] as const),
    'The web pages at /dashboard. local: a one-time sign-in link, printed at startup, on loopback only; oidc: sign-in with the provider of OIDC_ISSUER; off: no pages. auto is local in the role all on a sqlite: store and a loopback address, else off.',
  ),
  DASHBOARD_KEY_MANAGEMENT: setting(
    'false',
    flag,
    'Lets people issue, rotate, suspend and revoke API keys in the dashboard of a process with the role gateway. The process then writes ApiKeys to the API server of RESOURCES_URL. With the role all, people can always do this.',
  ),
  OIDC_ISSUER: setting('', issuer, 'The OpenID Connect provider of the dashboard.'),
  OIDC_CLIENT_ID: setting('', text, 'Client id of the dashboard at the provider.'),
  OIDC_CLIENT_SECRET: setting('', text, 'Client secret at the provider; a public client when empty.', { orFile: true, secret: 'whole' }),
  OIDC_TENANT_CLAIM: setting('tenants', text, 'The claim that lists the tenants (namespaces) a person may act for.'),
  OIDC_SCOPES: setting('openid profile', text, 'Scopes of the sign-in, separated by spaces; openid is one of them.'),
  PLUGINS: setting('', plugins, 'Third-party plugins, registered in this order.'),
  WORKER_SLOTS: setting('cores', slots, 'Tasks that one worker runs at once; by default the number of cores.'),
  WORKER_KINDS: setting('', list, 'Kinds and operations that this worker runs, separated by commas, such as video,trim; all when empty.'),
  INPUT_TIMEOUT_SECONDS: setting('120', seconds(1, 3600), 'Time within which all sources of a run of a task must arrive completely.'),
  BODY_MEMORY_MIB: setting(
    'auto',
    memoryShare,
    'Memory for request bodies, with what is parsed and fetched for them, in one gateway; auto is a quarter of the memory of the container or machine, at most 256. Beyond it, or beyond the share of a tenant, a request is refused with server_overloaded.',
  ),
  EGRESS_ALLOW: setting('', list, 'Addresses, networks and hosts that the egress guard allows, separated by commas.'),
  WEBHOOK_DELAYS_SECONDS: setting(
    '0,30,120,600,3600',
    delays,
    'Delay before each webhook attempt; the number of delays is the number of attempts.',
  ),
  WEBHOOK_TIMEOUT_SECONDS: setting('30', seconds(1, 300), 'Time within which a webhook receiver must answer.'),
  TASK_LEASE_SECONDS: setting(
    '30',
    seconds(1, 3600),
    'Lease of a running task: a worker that does not renew it within this time loses the task.',
  ),
  QUEUE_HOURS: setting(
    '24',
    hours,
    'Hours after which a queued task fails as not_supported and is refunded, if no engine or worker takes its kind or operation.',
  ),
  RESULT_DAYS: setting('7', days, 'Days that results are kept; fractions are allowed.'),
  EVENT_DAYS: setting('30', days, 'Days that events are kept in the event log.'),
  USAGE_DAYS: setting(
    '0',
    daysOrNone,
    'Days that usage records, for billing, are kept; 0: none are made, and existing ones stay. With Kafka they are published too.',
  ),
  TASK_DAYS: setting('90', days, 'Days that finished tasks and the requests of coding plans are kept.'),
  LOG_LEVEL: setting('info', oneOf(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']), 'Lowest level that is logged.'),
  METRICS_TENANT: setting('false', flag, 'Adds a tenant label to the usage counters, and to the gauges of Plans and ApiKeys.'),
  DRAIN_DELAY_SECONDS: setting('0', seconds(0, 3600), 'How long to keep serving after /readyz starts to fail, before the listener closes.'),
  SHUTDOWN_SECONDS: setting('25', seconds(0, 86_400), 'Time for streams and tasks in flight to finish when the program stops.'),
} satisfies Record<string, Setting<unknown>>

export type SettingName = keyof typeof SETTINGS
type ValueOf<N extends SettingName> = (typeof SETTINGS)[N] extends Setting<infer T> ? T : never

/** The member of a setting: its name, but a time that is set in seconds, hours or days is in milliseconds here (`SHUTDOWN_SECONDS` is `SHUTDOWN_MS`). */
type MemberOf<N extends SettingName> = N extends `${infer Time}_${'SECONDS' | 'HOURS' | 'DAYS'}` ? `${Time}_MS` : N

/** The values in force. */
export type Config = { [N in SettingName as MemberOf<N>]: ValueOf<N> } & {
  /**
   * The whole environment: `apiKeyEnv` of an upstream may name any variable; S3, kubeconfig and pod variables are read too, and a
   * credential plugin inherits all.
   */
  environment: Record<string, string | undefined>
  /** Variables that look like misspelled settings, one sentence each. */
  warnings: string[]
}

export type Source = 'default' | 'environment' | 'file' | 'argument'
export type Explained = { name: SettingName; value: string; default: string; source: Source; meaning: string }

/**
 * Reads all settings from the environment and the first argument. Returns them typed, and explained for `tollgate config`.
 * Throws a `ConfigError` with one sentence on the first invalid value; with the purpose `run` also on settings that contradict each other.
 */
export function readConfig(
  env: Record<string, string | undefined>,
  role?: string,
  purpose: 'run' | 'inspect' = 'run',
): { config: Config; explained: Explained[] } {
  const values: Record<string, unknown> = {}
  const explained: Explained[] = []
  const dataDir = env['DATA_DIR'] || SETTINGS.DATA_DIR.default
  for (const [name, entry] of Object.entries<Setting<unknown>>(SETTINGS)) {
    const fallback = entry.default.replace('DATA_DIR', dataDir)
    const { text, source } =
      name === 'ROLE' && role !== undefined ? { text: role, source: 'argument' as const } : given(env, name, entry, fallback)
    const value = entry.parse.read(text)
    if (value === undefined) throw new ConfigError(name, shown(entry, text), entry.parse.mayBe)
    values[name.replace(/_(SECONDS|HOURS|DAYS)$/, '_MS')] = value
    explained.push({ name: name as SettingName, value: shown(entry, text), default: entry.default, source, meaning: entry.meaning })
  }
  const warnings = misspelledSettings(
    Object.keys(env),
    Object.keys(SETTINGS).flatMap((name) => [name, `${name}_FILE`]),
  )
  const config = { ...values, environment: env, warnings } as Config
  if (purpose === 'run')
    refuseContradictions(config, (name) => explained.some((entry) => entry.name === name && entry.source !== 'default'))
  return { config, explained }
}

function given(
  env: Record<string, string | undefined>,
  name: string,
  entry: Setting<unknown>,
  fallback: string,
): { text: string; source: Source } {
  // An empty variable counts as absent: compose files and charts pass empty ones on.
  const file = (entry.orFile && env[`${name}_FILE`]) || undefined
  const text = env[name] || undefined
  if (file !== undefined && text !== undefined) throw new ConfigError(`${name}_FILE`, file, `left out when ${name} is given`)
  if (file !== undefined) return { text: readSetting(`${name}_FILE`, file), source: 'file' }
  return text === undefined ? { text: fallback, source: 'default' } : { text, source: 'environment' }
}

function readSetting(name: string, file: string): string {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch {
    throw new ConfigError(name, file, 'a file that can be read')
  }
}

/** A value fit for `tollgate config` and for errors. */
function shown({ secret }: Setting<unknown>, text: string): string {
  if (secret === 'whole') return text === '' ? '' : '***'
  return secret === 'password' ? withoutPassword(text) : text
}

/** A URL fit for logs: passwords, and parameters that hold one, replaced by `***`. */
export function withoutPassword(text: string): string {
  return text.replace(/(\/\/[^:@/]*):[^@/]*@/, '$1:***@').replaceAll(/([?&][^=&]*(?:password|secret|token)=)[^&]*/gi, '$1***')
}

/** The folders of the embedded side for Secrets and status files, and the file with the present sign-in link of a running program. */
export function embeddedPaths(dataDir: string): { secrets: string; status: string; signInLink: string } {
  return { secrets: join(dataDir, 'secrets'), status: join(dataDir, 'status'), signInLink: join(dataDir, 'sign-in-link') }
}
