/** Startup checks by role: settings that contradict each other, such as a worker over SQLite, prevent startup, with a one-sentence error. */
import type { Config } from './config.ts'
import { dashboardMode, isLocal, managesKeys } from './dashboard-mode.ts'
import { needs, serves, type Backend } from './needed-backends.ts'
import { ConfigError, isLoopback } from './setting-types.ts'

const WILDCARDS = ['0.0.0.0', '::']

/** Embedded addresses, which a single process can use, by backend: setting, scheme, and what a role of its own needs instead. */
const EMBEDDED_ONLY: [Backend, 'STORE_URL' | 'BROKER_URL' | 'FILES_URL', string, string][] = [
  ['store', 'STORE_URL', 'sqlite:', 'mongodb://<host>'],
  ['broker', 'BROKER_URL', 'memory:', 'kafka://<host>:<port>'],
  ['files', 'FILES_URL', 'disk:', 'gridfs: or s3://<bucket>'],
]

/** Throws a `ConfigError` on the first contradiction. `given` tells whether a setting was set at all. */
export function refuseContradictions(config: Config, given: (name: keyof Config) => boolean): void {
  refuseEmbeddedBackends(config)
  refuseDerivedKeys(config, given)
  if (isDistributed(config)) refuseMissingFiles(config, given)
  if (WILDCARDS.includes(config.HOST) && config.PUBLIC_URL === null && serves(config.ROLE)) {
    throw new ConfigError('PUBLIC_URL', '', `the address at which clients reach this gateway, because HOST is ${config.HOST}`)
  }
  if (config.ROLE === 'worker' && config.PUBLIC_URL === null) {
    throw new ConfigError('PUBLIC_URL', '', 'the address at which clients reach the gateways: a worker signs links to results')
  }
  refuseDashboard(config)
  if (config.PORT !== 0 && config.PORT === config.OPS_PORT && config.HOST === config.OPS_HOST) {
    throw new ConfigError(
      'OPS_PORT',
      String(config.OPS_PORT),
      'another port than PORT: the operations listener is separate from the public one',
    )
  }
}

/** The dashboard needs an address that is safe for its sessions, and a complete client of the provider. */
function refuseDashboard(config: Config): void {
  const mode = dashboardMode(config)
  if (mode === 'local' && !isLocal(config)) {
    const place = config.PUBLIC_URL === null ? `HOST is ${config.HOST}` : `HOST is ${config.HOST} and PUBLIC_URL is ${config.PUBLIC_URL}`
    throw new ConfigError('DASHBOARD', 'local', `oidc or off, because ${place}: the one-time link of local is for loopback only`)
  }
  if (mode === 'oidc') {
    for (const name of ['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_TENANT_CLAIM'] as const) {
      if (!config[name]) throw new ConfigError(name, '', 'given when DASHBOARD is oidc')
    }
    if (!config.OIDC_SCOPES.split(' ').includes('openid'))
      throw new ConfigError('OIDC_SCOPES', config.OIDC_SCOPES, 'scopes separated by spaces, openid among them')
    const url = config.PUBLIC_URL === null ? null : new URL(config.PUBLIC_URL)
    if (url?.protocol === 'http:' && !isLoopback(url.hostname)) {
      throw new ConfigError('PUBLIC_URL', url.origin, 'an https address when DASHBOARD is oidc: a session must not travel in the clear')
    }
    if (url === null && !isLoopback(config.HOST))
      throw new ConfigError('PUBLIC_URL', '', 'the address at which people reach the dashboard, because DASHBOARD is oidc')
  }
  if (managesKeys(config) && !config.RESOURCES_URL.startsWith('kubernetes:')) {
    throw new ConfigError(
      'RESOURCES_URL',
      config.RESOURCES_URL,
      'kubernetes: when DASHBOARD_KEY_MANAGEMENT is true in the role gateway: only the role all writes manifests in a folder',
    )
  }
}

/** Whether processes share the store. */
export function isDistributed(config: Pick<Config, 'STORE_URL'>): boolean {
  return !config.STORE_URL.startsWith('sqlite:')
}

function refuseEmbeddedBackends(config: Config): void {
  for (const [backend, setting, scheme, instead] of EMBEDDED_ONLY) {
    if (config.ROLE !== 'all' && needs(config.ROLE, backend) && config[setting].startsWith(scheme)) {
      throw new ConfigError(
        setting,
        config[setting],
        `${instead} in the role ${config.ROLE}: ${scheme} works in a single process only, with the role all`,
      )
    }
  }
  if (config.FILES_URL.startsWith('gridfs:') && !isDistributed(config)) {
    throw new ConfigError(
      'FILES_URL',
      config.FILES_URL,
      'disk:<path> or s3://<bucket>, because STORE_URL is sqlite and gridfs: stores files in the MongoDB of STORE_URL',
    )
  }
}

/** Derived keys are for roles that decrypt no API key. */
function refuseDerivedKeys(config: Config, given: (name: keyof Config) => boolean): void {
  const file = config.DERIVED_KEYS_FILE
  if (file === null) return
  if (config.ROLE !== 'gateway' && config.ROLE !== 'worker') {
    throw new ConfigError('DERIVED_KEYS_FILE', file, `empty in the role ${config.ROLE}, which decrypts API keys: it needs SEALING_KEY_FILE`)
  }
  if (given('SEALING_KEY_FILE'))
    throw new ConfigError('DERIVED_KEYS_FILE', file, 'empty where SEALING_KEY_FILE is given: a process has one of the two')
}

/** The embedded side creates a sealing key and uses built-in upstreams and engines. The distributed side must name them. */
function refuseMissingFiles(config: Config, given: (name: keyof Config) => boolean): void {
  const store = config.STORE_URL.split(':')[0]
  if (config.DERIVED_KEYS_FILE === null && !given('SEALING_KEY_FILE')) {
    throw new ConfigError(
      'SEALING_KEY_FILE',
      '',
      `a file with 32 bytes in base64, the same for every process, because STORE_URL is ${store}; only the embedded side creates this file itself`,
    )
  }
  if (needs(config.ROLE, 'upstreams') && config.UPSTREAMS === null) {
    throw new ConfigError(
      'UPSTREAMS',
      '',
      `a file that names the model upstreams, because STORE_URL is ${store}; to use the built-in echo, add an upstream with baseUrl: "echo:" to that file`,
    )
  }
  if (needs(config.ROLE, 'engines') && config.ENGINES === null) {
    throw new ConfigError(
      'ENGINES',
      '',
      `a file that names the engines, because STORE_URL is ${store}; to use the preview engine, add an engine with type: preview to that file`,
    )
  }
}
