/** Opens the backends that a role needs, and no others. */
import { readFile, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import type { FastifyBaseLogger } from 'fastify'
import type { Registry } from 'prom-client'
import { openBroker, type Broker } from '../backends/broker/broker.ts'
import { ConfigError, isDistributed, needs, type Config, type Backend } from '../config/config.ts'
import { openEngines, type Engines } from '../backends/engines/engine.ts'
import { openFiles, type Files } from '../backends/files/files.ts'
import type { SealingKeys } from '../domain/api-keys.ts'
import { parsePlanLimits, type PlanLimits } from '../domain/plan-limits.ts'
import { openResources, type Resources } from '../backends/resources/resources.ts'
import { openStore, type Store } from '../backends/store/store.ts'
import { openUpstreams, type Upstreams } from '../upstream/upstreams.ts'
import { makeDataFolder } from './data-folder.ts'
import { lock } from './process-lock.ts'
import { countRetries, countPublished, observed } from './backend-metrics.ts'
import { openSealingKeys } from './sealing-keys.ts'
import { holdControllerLease } from './controller-lease.ts'
import type { Opener } from './startup-retry.ts'

/** Everything that a role stands on, opened before any plugin is. Null: the role does without. */
export type Backends = {
  store: Store
  sealingKeys: SealingKeys
  planLimits: PlanLimits | null
  resources: Resources | null
  upstreams: Upstreams | null
  broker: Broker | null
  files: Files | null
  engines: Engines | null
  /** In reverse order of opening. Closing twice is harmless. */
  close(): Promise<void>
}

export type Surroundings = {
  config: Config
  log: FastifyBaseLogger
  /** Epoch milliseconds. */
  clock: () => number
  registry: Registry
  /** The process must end at once: what it alone may do could be done by another. */
  lost?: (error: Error) => void
}

type Closable = { close(): Promise<void> }

/** Opens every backend of the role. One that is away is tried again by `open` until the start is given up; nonsense throws at once. */
export async function openBackends(surroundings: Surroundings, open: Opener): Promise<Backends> {
  const opened: Closable[] = []
  const keep = <T extends Closable>(backend: T): T => {
    opened.unshift(backend)
    return backend
  }
  const close = async (): Promise<void> => {
    for (const backend of opened.splice(0)) await backend.close()
  }
  try {
    await lockData(surroundings, keep)
    return { ...(await openAll(surroundings, open, keep)), close }
  } catch (error) {
    await close()
    throw error
  }
}

async function openAll({ config, log, registry, lost }: Surroundings, open: Opener, keep: <T extends Closable>(backend: T) => T): Promise<Omit<Backends, 'close'>> {
  const { STORE_URL, RESOURCES_URL, UPSTREAMS, BROKER_URL, FILES_URL, ENGINES } = config
  const planLimits = config.PLAN_LIMITS === null ? null : await readPlanLimits(config.PLAN_LIMITS)
  const when = async <T extends Closable>(backend: Backend, at: string, opening: () => Promise<T>): Promise<T | null> =>
    needs(config.ROLE, backend) ? keep(await open(backend, opening, at)) : null
  const retried = countRetries(registry)
  const store = observed('store', keep(await open('store', () => openStore(STORE_URL, { retried }), STORE_URL)), registry)
  // Whoever has the file believes to be alone with it.
  if (!isDistributed(config)) keep(await lock(`${await realpath(STORE_URL.slice('sqlite:'.length))}.lock`, 'STORE_URL', STORE_URL))
  const sealingKeys = await openSealingKeys(config, store)
  if (needs(config.ROLE, 'resources') && isDistributed(config) && RESOURCES_URL.startsWith('files:')) {
    keep(await open('turn of this controller', () => holdControllerLease(store, config.DATA_DIR, lost ?? (() => {}))))
  }
  const resources = await when('resources', RESOURCES_URL, () => openResources({ url: RESOURCES_URL, dataDir: config.DATA_DIR, environment: config.environment, declarations: store, log }))
  const upstreams = await when('upstreams', UPSTREAMS ?? '', () => openUpstreams({ file: UPSTREAMS, env: (name) => config.environment[name], log }))
  const counted = countPublished(registry)
  const broker = await when('broker', BROKER_URL, () => openBroker(BROKER_URL, { log, counted }))
  const files = await when('files', FILES_URL, () => openFiles(FILES_URL, { storeUrl: STORE_URL, credentials: credentialsOf(config) }))
  const engines = await when('engines', ENGINES ?? '', () => openEngines({ file: ENGINES, log }))
  return { store, sealingKeys, planLimits, resources, upstreams, broker, files: files && observed('files', files, registry), engines }
}

/** What of the data folder this process writes must be its own. A role that writes nothing there needs no such folder. */
async function lockData({ config, log }: Surroundings, keep: (backend: Closable) => void): Promise<void> {
  const { ROLE, DATA_DIR, FILES_URL } = config
  const isEmbedded = !isDistributed(config)
  const writesSecrets = needs(ROLE, 'resources') && config.RESOURCES_URL.startsWith('files:')
  if (!isEmbedded && !writesSecrets && !(needs(ROLE, 'files') && FILES_URL.startsWith('disk:'))) return
  await makeDataFolder(DATA_DIR, log)
  keep(await lock(join(DATA_DIR, 'lock'), 'DATA_DIR', DATA_DIR))
}

/** By the names that every S3 client knows. */
function credentialsOf({ environment }: Config): { accessKeyId: string; secretAccessKey: string; sessionToken?: string } | undefined {
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey, AWS_SESSION_TOKEN: sessionToken } = environment
  return accessKeyId && secretAccessKey ? { accessKeyId, secretAccessKey, ...(sessionToken ? { sessionToken } : {}) } : undefined
}

async function readPlanLimits(file: string): Promise<PlanLimits> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError('PLAN_LIMITS', file, `a file that can be read (${error.code})`)
  })
  const read = parsePlanLimits(text)
  if (read.outcome === 'refused') throw new ConfigError('PLAN_LIMITS', file, `a file of plan limits (${read.reason})`)
  return read.limits
}
