/** Test fixture: a controller over a real store and a real folder of manifests, with a fake clock, fake timers and injected faults. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pino from 'pino'
import fastify, { type FastifyBaseLogger, type FastifyInstance } from 'fastify'
import { Registry } from 'prom-client'
import type { Broker } from '../../src/backends/broker/broker.ts'
import type { Message } from '../../src/domain/broker-messages.ts'
import type { Test } from 'tap'
import controller from '../../plugins/controller/controller.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import { hashKey, type KeyVersion, type SealingKeys } from '../../src/domain/api-keys.ts'
import type { PlanLimits } from '../../src/domain/plan-limits-by-namespace.ts'
import { openFiles, type FilesResources } from '../../src/backends/resources/manifests/manifests.ts'
import type { ApiKeyStatus, PlanStatus, Ref, Resources } from '../../src/backends/resources/resources.ts'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import { conditions } from '../domain/reconcile/reconcile-world.ts'
import { entriesOf } from '../backends/resources/manifest-folder.ts'
import { MEMORY } from '../memory-folder.ts'

/** Mutating calls of the store and of the resources. */
const WRITES = ['change', 'mintKey', 'setKey', 'told', 'putSecret', 'removeSecrets', 'setStatus']

/** Decides the fate of a call: normal, the process dies after it, or its server is unreachable. */
export type Fate = (verb: string) => 'lives' | 'dies' | 'away'

export type Running = {
  app: FastifyInstance
  resources: FilesResources
  /** The mutating calls so far, in order. */
  writes: string[]
  /** Messages that were published. */
  messages: Message[]
  /** Polls the folder until everything is read, and waits until the controller is idle. */
  settle(): Promise<void>
  metric(name: string): Promise<{ labels: object; value: number }[]>
}

export type Tenant = {
  store: Store
  time: { now: number }
  log: string[]
  declare(file: string, ...documents: object[]): Promise<void>
  withdraw(file: string): Promise<void>
  /** Starts a controller process, which leads unless `election` says otherwise. Wait for `settle` before anything else. With an `election` it is not awaited until it is ready. */
  start(options?: { fate?: Fate; limits?: PlanLimits; election?: Pick<Resources, 'lead' | 'isLeading'> }): Promise<Running>
  secret(name: string): Promise<Record<string, string> | null>
  secretPath(name: string): string
  conditions(running: Running, kind: Ref['kind'], name: string): Promise<Record<string, string>>
  status(running: Running, kind: Ref['kind'], name: string): Promise<PlanStatus | ApiKeyStatus | null>
  /** Advances the clock and runs due timers. */
  pass(running: Running, ms: number): Promise<void>
  /** Versions of the key of that name, with the key that its Secret contains. */
  versions(running: Running, name: string): Promise<KeyVersion[]>
  usableBySecret(name: string): Promise<KeyVersion | null>
}

export const SEALING: SealingKeys = [Buffer.alloc(32, 1)]

export async function openTenant(t: Test): Promise<Tenant> {
  const root = await mkdtemp(join(MEMORY, 'tollgate-'))
  await mkdir(join(root, 'plans'))
  const store = await openStore(`sqlite:${join(root, 'tollgate.db')}`)
  const time = { now: Date.UTC(2026, 0, 5) }
  const log: string[] = []
  const timers = new Set<{ at: number; run: () => void }>()
  const started: Running[] = []
  let randoms = 0
  t.teardown(async () => {
    for (const { app, resources } of started) {
      await app.close()
      await resources.close()
    }
    await store.close()
    await rm(root, { recursive: true })
  })
  const secretPath = (name: string) => join(root, 'data', 'secrets', 'acme', name)
  const status = (running: Running, kind: Ref['kind'], name: string) => running.resources.status({ kind, namespace: 'acme', name })

  function after(ms: number, run: () => void): () => void {
    const timer = { at: time.now + ms, run }
    timers.add(timer)
    return () => timers.delete(timer)
  }

  const tenant: Tenant = {
    store,
    time,
    log,
    async declare(file, ...documents) {
      await mkdir(join(root, 'plans'), { recursive: true })
      await writeFile(join(root, 'plans', file), documents.map((document) => JSON.stringify(document)).join('\n---\n'))
    },
    withdraw: (file) => rm(join(root, 'plans', file)),
    async start(options = {}) {
      const { limits } = options
      const fate: Fate = options.fate ?? (() => 'lives')
      const say = (_: object, message: string) => void log.push(message)
      const quiet = { info: say, warn: say, error: say }
      const files = await openFiles({ url: `files:${root}/plans`, dataDir: join(root, 'data'), declarations: store, log: quiet }, { clock: () => time.now, uptime: () => time.now, isPolling: false })
      const writes: string[] = []
      const messages: Message[] = []
      const life = { isDead: false }
      const app: FastifyInstance = fastify({ loggerInstance: pino({ level: 'silent' }) as FastifyBaseLogger })
      const registry = new Registry()
      app.decorate('clock', () => time.now)
      app.decorate('store', faulty(store, 'store', fate, writes, life))
      app.decorate('resources', faulty({ ...files, ...options.election }, 'resources', fate, writes, life))
      app.decorate('sealingKeys', SEALING)
      app.decorate('planLimits', limits ?? null)
      app.decorate('engines', { offer: () => null } as never)
      app.decorate('broker', { publish: (message: Message) => void messages.push(message) } as Broker)
      app.decorate('config', { BRAND: 'SVC' } as FastifyInstance['config'])
      app.decorate('metrics', { registry })
      app.decorate('checks', [])
      await app.register(controller, { after, random: (bytes: number) => new Uint8Array(bytes).fill(++randoms) })
      await app.ready()
      const metric = async (name: string) => ((await registry.getSingleMetric(name)?.get())?.values ?? []).map(({ labels, value }) => ({ labels, value }))
      const running: Running = {
        app,
        resources: files,
        writes,
        messages,
        metric,
        async settle() {
          for (const ms of [0, 1, 2_000, 0, 10_000]) {
            time.now += ms
            await files.sync()
            await rest(app, metric)
          }
        },
      }
      started.push(running)
      if (!options.election) await rest(app, metric)
      return running
    },
    secretPath,
    secret: (name) => entriesOf(secretPath(name)),
    status,
    conditions: async (running, kind, name) => conditions(await status(running, kind, name)),
    async pass(running, ms) {
      time.now += ms
      for (const timer of timers) {
        if (timer.at > time.now) continue
        timers.delete(timer)
        timer.run()
      }
      await running.settle()
    },
    versions: async ({ resources }, name) => store.keyVersions(resources.get({ kind: 'ApiKey', namespace: 'acme', name })?.metadata.uid ?? ''),
    async usableBySecret(name) {
      const entries = await entriesOf(secretPath(name))
      return entries && store.findKey(hashKey(entries['api-key'] ?? ''))
    },
  }
  return tenant
}

/** Resolves when the controller has reconciled everything and is idle. */
async function rest(app: FastifyInstance, metric: Running['metric']): Promise<void> {
  const busy = async () => {
    const [depths, active, checks] = await Promise.all([metric('workqueue_depth'), metric('controller_runtime_active_workers'), Promise.all(app.checks.map((check) => check()))])
    return [...depths, ...active].some(({ value }) => value > 0) || checks.some(({ name, ok }) => name === 'controller' && !ok)
  }
  for (let calm = 0; calm < 3; calm = (await busy()) ? 0 : calm + 1) await new Promise((resolve) => setImmediate(resolve))
}

/** Wraps a backend with a fate for each call. A dead process writes nothing more. */
function faulty<D extends object>(backend: D, name: string, fate: Fate, writes: string[], life: { isDead: boolean }): D {
  return new Proxy(backend, {
    get(target, verb: string) {
      const original = Reflect.get(target, verb)
      if (typeof original !== 'function' || verb === 'close') return original
      const isWrite = WRITES.includes(verb)
      const isAsync = isWrite || ['subscription', 'keyVersions', 'keysOf', 'secret', 'status', 'watch'].includes(verb)
      return isAsync ? call(original.bind(target), verb, isWrite) : original.bind(target)
    },
  })

  function call(original: (...args: unknown[]) => Promise<unknown>, verb: string, isWrite: boolean) {
    return async (...args: unknown[]) => {
      if (life.isDead) throw new Error('dead')
      const decided = fate(verb)
      if (decided === 'away') throw new Unavailable(name, new Error('away'))
      const answer = await original(...args)
      if (isWrite) writes.push(verb)
      if (decided === 'dies') {
        life.isDead = true
        throw new Error('dead')
      }
      return answer
    }
  }
}
