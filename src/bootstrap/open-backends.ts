/** Opens the backends that a role needs, and no others. */
import { mkdir, realpath } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import type { FastifyBaseLogger } from 'fastify'
import type { Registry } from 'prom-client'
import { openBroker, type Broker } from '../backends/broker/broker.ts'
import type { Config } from '../config/config.ts'
import { isDistributed } from '../config/startup-checks.ts'
import { managesKeys } from '../config/dashboard-mode.ts'
import { needs, type Backend } from '../config/needed-backends.ts'
import { openEngines, type Engines } from '../backends/engines/engine.ts'
import { openFiles, type Files } from '../backends/files/files.ts'
import type { SealingKeys } from '../domain/api-keys.ts'
import type { DerivedKeys } from '../domain/derived-keys.ts'
import { Unavailable } from '../domain/errors.ts'
import { parsePlanLimits, type PlanLimits } from '../domain/plan-limits-by-namespace.ts'
import { openResources, type Resources } from '../backends/resources/resources.ts'
import { openStore, type Store, type StoreOptions } from '../backends/store/store.ts'
import type { Upstreams } from '../upstream/upstreams.ts'
import { makeDataFolder } from './data-folder.ts'
import { lock } from './process-lock.ts'
import { countHealed, countRetries, countMessages, instrument, logFailingWrites, timeSends } from './backend-metrics.ts'
import { fitStore, openKeys, readText } from './sealing-keys.ts'
import { openStoreClock, type StoreClock } from './store-clock.ts'
import { holdControllerLease } from './controller-lease.ts'
import { providerAccess } from './provider-access.ts'
import type { Opener } from './startup-retry.ts'

/** The backends and services of a role, opened before any plugin is registered. Null: the role does not use it. */
export type Backends = {
  store: Store
  /** The time of every process. */
  clock: Pick<StoreClock, 'now' | 'check'>
  /** Null with DERIVED_KEYS_FILE. */
  sealingKeys: SealingKeys | null
  derivedKeys: DerivedKeys
  /** False: the sealing keys open no API key of the store, which other processes sealed by other ones. */
  keysFit: boolean
  planLimits: PlanLimits | null
  resources: Resources | null
  upstreams: Upstreams | null
  broker: Broker | null
  files: Files | null
  engines: Engines | null
  /** Closes in reverse order of opening. Idempotent. */
  close(): Promise<void>
}

export type StartContext = {
  config: Config
  log: FastifyBaseLogger
  /** The wall clock of this machine, epoch milliseconds. */
  wall: () => number
  registry: Registry
  /** Called when the controller lease is lost: the process must end at once. */
  lost?: (error: Error) => void
}

type Closable = { close(): Promise<void> }

/** Opens every backend of the role. `open` retries one that is unavailable until the start is aborted. Throws at once on what retrying cannot mend. */
export async function openBackends(context: StartContext, open: Opener): Promise<Backends> {
  const opened: Closable[] = []
  const keep = <T extends Closable>(backend: T): T => {
    opened.unshift(backend)
    return backend
  }
  const close = async (): Promise<void> => {
    for (const backend of opened.splice(0)) await backend.close()
  }
  try {
    await lockData(context, keep)
    if (!isDistributed(context.config)) keep(await lockStore(context.config.STORE_URL))
    return { ...(await openAll(context, open, keep)), close }
  } catch (error) {
    await close()
    throw error
  }
}

async function openAll(
  { config, log, wall, registry, lost }: StartContext,
  open: Opener,
  keep: <T extends Closable>(backend: T) => T,
): Promise<Omit<Backends, 'close'>> {
  const { STORE_URL, RESOURCES_URL, UPSTREAMS, BROKER_URL, FILES_URL, ENGINES, PLAN_LIMITS } = config
  const planLimits = PLAN_LIMITS === null ? null : parsePlanLimits(PLAN_LIMITS, await readText('PLAN_LIMITS', PLAN_LIMITS))
  const when = async <T extends Closable>(backend: Backend, at: string, opening: () => Promise<T>): Promise<T | null> =>
    needs(config.ROLE, backend) || (backend === 'resources' && managesKeys(config)) ? keep(await open(backend, opening, at)) : null
  const retried = countRetries(registry)
  const healed = countHealed(registry, log)
  const failing = logFailingWrites(log)
  let measured: StoreClock | null = null
  const storeTime = () => measured?.writeTime() ?? null
  const unguarded = keep(
    await open(
      'store',
      () =>
        openStore(STORE_URL, {
          retried,
          storeTime,
          healed,
          failing,
          threads: true,
          isSole: !isDistributed(config),
          leases: config.PLAN_LEASES,
          ...usageOptions(config),
        }),
      STORE_URL,
    ),
  )
  const clock = keep(await open('store', () => openStoreClock(unguarded, { log, registry, wall }), STORE_URL))
  measured = clock
  // A process with a wrong clock does not start: it waits, alive and not ready.
  await open('clock', async () => {
    const { ok, detail } = clock.check()
    if (!ok) throw new Unavailable('store', new Error(detail))
  })
  const store = instrument('store', clock.guard(unguarded), registry, { 'db.system.name': isDistributed(config) ? 'mongodb' : 'sqlite' })
  const { sealingKeys, derivedKeys } = await openKeys(config, store)
  const keysFit = sealingKeys === null || (await open('store', () => fitStore(sealingKeys, store), STORE_URL))
  if (!keysFit) log.error({ event: 'sealing_key_wrong' }, 'SEALING_KEY_FILE opens no API key of the store, not ready')
  if (needs(config.ROLE, 'resources') && isDistributed(config) && RESOURCES_URL.startsWith('files:')) {
    keep(await open('controller lease', () => holdControllerLease(store, config.DATA_DIR, lost ?? (() => {}))))
  }
  const resources = await when('resources', RESOURCES_URL, () =>
    openResources({ url: RESOURCES_URL, dataDir: config.DATA_DIR, environment: config.environment, declarations: store, log }, clock.now),
  )
  const upstreams = await when('upstreams', UPSTREAMS ?? '', async () => {
    const { openUpstreams } = await import('../upstream/upstreams.ts')
    return openUpstreams({ file: UPSTREAMS, env: (name) => config.environment[name], log })
  })
  const [counted, sent] = [countMessages(registry), timeSends(registry)]
  const broker = await when('broker', BROKER_URL, () => openBroker(BROKER_URL, { log, counted, sent }))
  const files = await when('files', FILES_URL, () => openFiles(FILES_URL, { storeUrl: STORE_URL, credentials: credentialsOf(config) }))
  const engines = await when('engines', ENGINES ?? '', () =>
    openEngines({ file: ENGINES, log, providers: providerAccess(config, clock.now), runs: ['all', 'worker'].includes(config.ROLE) }),
  )
  return {
    store,
    clock,
    sealingKeys,
    derivedKeys,
    keysFit,
    planLimits,
    resources,
    upstreams,
    broker,
    files: files && instrument('files', files, registry),
    engines,
  }
}

function usageOptions({ USAGE_MS, BROKER_URL, ROLE }: Config): StoreOptions {
  return {
    recordsUsage: USAGE_MS > 0,
    publishesUsage: BROKER_URL.startsWith('kafka:'),
    // Another role may be without the broker's address: what it stores would never be published.
    storesUsageOfOthers: ['all', 'gateway', 'worker'].includes(ROLE),
  }
}

/** Locks DATA_DIR for this process. A role that writes nothing there does not create it. */
async function lockData({ config, log }: StartContext, keep: (backend: Closable) => void): Promise<void> {
  const { ROLE, DATA_DIR, FILES_URL } = config
  const isEmbedded = !isDistributed(config)
  const writesSecrets = needs(ROLE, 'resources') && config.RESOURCES_URL.startsWith('files:')
  if (!isEmbedded && !writesSecrets && !(needs(ROLE, 'files') && FILES_URL.startsWith('disk:'))) return
  await makeDataFolder(DATA_DIR, log)
  keep(await lock(join(DATA_DIR, 'lock'), 'DATA_DIR', DATA_DIR))
}

/** Locks the SQLite file, which one process alone may write, before it is opened: opening it migrates it. */
async function lockStore(url: string): Promise<Closable> {
  const file = resolve(url.slice('sqlite:'.length))
  // What fails here fails again at the lock, which tells the reason.
  await mkdir(dirname(file), { recursive: true, mode: 0o700 }).catch(() => {})
  const folder = await realpath(dirname(file)).catch(() => dirname(file))
  const path = await realpath(file).catch(() => join(folder, basename(file)))
  return lock(`${path}.lock`, 'STORE_URL', url)
}

/** S3 credentials, by the variable names that S3 clients share. */
export function credentialsOf({
  environment,
}: Config): { accessKeyId: string; secretAccessKey: string; sessionToken?: string } | undefined {
  const { AWS_ACCESS_KEY_ID: accessKeyId, AWS_SECRET_ACCESS_KEY: secretAccessKey, AWS_SESSION_TOKEN: sessionToken } = environment
  return accessKeyId && secretAccessKey ? { accessKeyId, secretAccessKey, ...(sessionToken ? { sessionToken } : {}) } : undefined
}
