/** Settings that are right by themselves and make no sense together. Each combination is refused with one sentence. */
import type { Config } from './config.ts'
import { needs, serves, type Backend } from './roles.ts'
import { ConfigError } from './setting-types.ts'

const WILDCARDS = ['0.0.0.0', '::']

/** Addresses that only one process can use, by the backend that they open. */
const OF_ONE_PROCESS: [Backend, 'STORE_URL' | 'BROKER_URL' | 'FILES_URL', string, string][] = [
  ['store', 'STORE_URL', 'sqlite:', 'mongodb://<host>'],
  ['broker', 'BROKER_URL', 'memory:', 'kafka://<host>:<port>'],
  ['files', 'FILES_URL', 'disk:', 'gridfs: or s3://<bucket>'],
]

/** Throws a `ConfigError` on the first thing that contradicts another. `given`: whether the setting was given at all. */
export function refuseContradictions(config: Config, given: (name: keyof Config) => boolean): void {
  refuseAddresses(config)
  if (isDistributed(config)) refuseDefaults(config, given)
  if (WILDCARDS.includes(config.HOST) && config.PUBLIC_URL === null && serves(config.ROLE)) {
    throw new ConfigError('PUBLIC_URL', '', `the address under which the world reaches us, because HOST is ${config.HOST}`)
  }
  if (config.ROLE === 'worker' && config.PUBLIC_URL === null) {
    throw new ConfigError('PUBLIC_URL', '', 'the address under which the world reaches the gateways: a worker makes links to results')
  }
  if (config.PORT !== 0 && config.PORT === config.OPS_PORT && config.HOST === config.OPS_HOST) {
    throw new ConfigError('OPS_PORT', String(config.OPS_PORT), 'another port than PORT: operations never share the public listener')
  }
}

/** Whether processes share the store. */
export function isDistributed(config: Pick<Config, 'STORE_URL'>): boolean {
  return !config.STORE_URL.startsWith('sqlite:')
}

function refuseAddresses(config: Config): void {
  for (const [backend, setting, scheme, instead] of OF_ONE_PROCESS) {
    if (config.ROLE !== 'all' && needs(config.ROLE, backend) && config[setting].startsWith(scheme)) {
      throw new ConfigError(setting, config[setting], `${instead} in the role ${config.ROLE}: ${scheme} serves one process alone, with the role all`)
    }
  }
  if (config.FILES_URL.startsWith('gridfs:') && !isDistributed(config)) {
    throw new ConfigError('FILES_URL', config.FILES_URL, 'gridfs: only while STORE_URL is mongodb://<host>, where it keeps the files')
  }
}

/** What the embedded side makes up for a person who tries it out must be said where others are served. */
function refuseDefaults(config: Config, given: (name: keyof Config) => boolean): void {
  const store = config.STORE_URL.split(':')[0]
  if (!given('SEALING_KEY_FILE')) {
    throw new ConfigError('SEALING_KEY_FILE', '', `a file with 32 bytes in base64, the same for every process, because STORE_URL is ${store}: it is never made for you there`)
  }
  if (needs(config.ROLE, 'upstreams') && config.UPSTREAMS === null) {
    throw new ConfigError('UPSTREAMS', '', `a file that names the model upstreams, because STORE_URL is ${store}; the built-in echo must be named there, with baseUrl: "echo:"`)
  }
  if (needs(config.ROLE, 'engines') && config.ENGINES === null) {
    throw new ConfigError('ENGINES', '', `a file that names the engines, because STORE_URL is ${store}; the preview engine must be named there, with type: preview`)
  }
}
