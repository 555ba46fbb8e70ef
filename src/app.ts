/** The list: opens the doors, then registers the plugins of each role in the order in which a request flows through them. */
import { randomBytes, randomUUID } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import fastify, { type FastifyBaseLogger, type FastifyInstance } from 'fastify'
import type { Registry } from 'prom-client'
import auth from '../plugins/auth/auth.ts'
import controller from '../plugins/controller/controller.ts'
import errors from '../plugins/errors/errors.ts'
import metering from '../plugins/metering/metering.ts'
import openai from '../plugins/openai/openai.ts'
import ops from '../plugins/ops/ops.ts'
import { ConfigError, embeddedPaths, type Config, type Role } from './config.ts'
import { parseSealingKeys, type SealingKeys } from './keys.ts'
import { apiOf, type Api } from './plans.ts'
import { openPlanLimits, type PlanLimits } from './plan-limits.ts'
import { openResources, type Resources } from './resources/resources.ts'
import { openStore, type Store } from './store/store.ts'
import { openUpstreams, type Upstreams } from './upstream/upstreams.ts'

export { openOps, type Check } from '../plugins/ops/listener.ts'

declare module 'fastify' {
  interface FastifyInstance {
    config: Config
    /** Epoch milliseconds. */
    clock: () => number
    store: Store
    resources: Resources
    upstreams: Upstreams
    sealingKeys: SealingKeys
    planLimits: PlanLimits | null
  }
}

/** Everything that a role stands on, opened before any plugin is. */
export type Doors = {
  store: Store
  resources: Resources
  upstreams: Upstreams
  sealingKeys: SealingKeys
  planLimits: PlanLimits | null
  /** In reverse order of opening. Closing twice is harmless. */
  close(): Promise<void>
}

type Surroundings = { config: Config; log: FastifyBaseLogger; clock: () => number }

/** Opens every door. One that is away is tried again with back-off until `stop` is aborted; nonsense throws at once. */
export async function openDoors({ config, log }: Surroundings, open: Opener): Promise<Doors> {
  await mkdir(config.DATA_DIR, { recursive: true, mode: 0o700 })
  const sealingKeys = await openSealingKeys(config.SEALING_KEY_FILE)
  const planLimits = config.PLAN_LIMITS === null ? null : await openPlanLimits(config.PLAN_LIMITS)
  const opened: { close(): Promise<void> }[] = []
  const keep = <T extends { close(): Promise<void> }>(door: T) => {
    opened.unshift(door)
    return door
  }
  const store = keep(await open('store', () => openStore(config.STORE_URL)))
  const resources = keep(
    await open('resources', () => openResources({ url: config.RESOURCES_URL, dataDir: config.DATA_DIR, declarations: store, log })),
  )
  const upstreams = keep(await open('upstreams', () => openUpstreams({ file: config.UPSTREAMS, env: config.env, log })))
  return {
    store,
    resources,
    upstreams,
    sealingKeys,
    planLimits,
    async close() {
      for (const door of opened) await door.close()
    },
  }
}

/** Opens one door by its name, however long that takes. */
export type Opener = <T>(name: string, open: () => Promise<T>) => Promise<T>

/** Reads the keys that seal API keys. The embedded side makes the file at its first start. Throws a `ConfigError` when it is not what it must be. */
async function openSealingKeys(file: string): Promise<SealingKeys> {
  const text = await readFile(file, 'utf8').catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw new ConfigError('SEALING_KEY_FILE', file, `a file that can be read (${error.code})`)
    const made = `${randomBytes(32).toString('base64')}\n`
    await mkdir(dirname(file), { recursive: true, mode: 0o700 })
    await writeFile(file, made, { mode: 0o600, flag: 'wx' })
    return made
  })
  const keys = parseSealingKeys(text)
  if (!keys) throw new ConfigError('SEALING_KEY_FILE', file, 'a file with 32 bytes in base64 on each line')
  return keys
}

/** Fastify's own limits on what a client controls. A body as large as a coding request's has this long to arrive. */
const LIMITS = { requestTimeout: 120_000, headersTimeout: 20_000, keepAliveTimeout: 72_000, maxParamLength: 200 }

/** Builds the program of a role over its doors: nothing listens and no loop runs before `ready()`. */
export function buildApp(surroundings: Surroundings, doors: Doors, registry: Registry): FastifyInstance {
  const { config, log, clock } = surroundings
  const app: FastifyInstance = fastify({
    loggerInstance: log,
    disableRequestLogging: true,
    requestTimeout: LIMITS.requestTimeout,
    keepAliveTimeout: LIMITS.keepAliveTimeout,
    routerOptions: { maxParamLength: LIMITS.maxParamLength },
    http: { headersTimeout: LIMITS.headersTimeout },
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    trustProxy: config.TRUST_PROXY.length > 0 ? config.TRUST_PROXY : false,
    genReqId: ({ headers }) => requestId(headers['x-request-id']),
  })
  app.decorate('config', config)
  app.decorate('clock', clock)
  app.decorate('store', doors.store)
  app.decorate('resources', doors.resources)
  app.decorate('upstreams', doors.upstreams)
  app.decorate('sealingKeys', doors.sealingKeys)
  app.decorate('planLimits', doors.planLimits)
  app.register(errors)
  app.register(ops, { registry })
  const runs = (...roles: Role[]) => config.ROLE === 'all' || roles.includes(config.ROLE)
  if (runs('gateway')) {
    app.register(async (gateway) => {
      gateway.register(auth)
      gateway.register(metering)
      gateway.register(openai)
    })
  }
  if (runs('controller')) app.register(controller)
  return app
}

/** A client's own request id is kept if it is fit for a log, else one is made. */
function requestId(given: string | string[] | undefined): string {
  return typeof given === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(given) ? given : randomUUID()
}

/** What a person needs once the program is ready: the addresses, where the keys lie, and a request of each product to paste. */
export function greeting(app: FastifyInstance, url: string, opsUrl: string): { text: string; facts: Record<string, unknown> } {
  const base = app.config.PUBLIC_URL ?? url
  const keys = app.resources
    .list('ApiKey')
    .filter(({ spec }) => spec.secretName !== undefined && spec.state === 'Active')
    .map((key) => {
      const plan = app.resources.get({ kind: 'Plan', namespace: key.metadata.namespace, name: key.spec.planRef.name })
      const api = plan?.kind === 'Plan' ? apiOf(plan.spec.product) : null
      const file = join(embeddedPaths(app.config.DATA_DIR).secrets, key.metadata.namespace, key.spec.secretName ?? '', 'api-key')
      return { name: `${key.metadata.namespace}/${key.metadata.name}`, api, file }
    })
  const curls = (['coding', 'media'] as const).flatMap((api) => {
    const key = keys.find((candidate) => candidate.api === api)
    return key && PASTE[api] ? [`curl ${base}${PASTE[api].path} -H "Authorization: Bearer $(cat '${key.file}')" -H 'Content-Type: application/json' -d '${PASTE[api].body}'`] : []
  })
  const text = [
    `Tollgate serves ${base}, operations ${opsUrl}`,
    ...keys.map(({ name, file }) => `Key ${name}: ${file}`),
    ...(curls.length > 0 ? ['Try it:', ...curls.map((line) => `  ${line}`)] : []),
  ].join('\n')
  return { text, facts: { url, opsUrl, publicUrl: base, keys: keys.map(({ name, file }) => ({ name, file })), try: curls } }
}

const PASTE: Partial<Record<Api, { path: string; body: string }>> = {
  coding: { path: '/v1/chat/completions', body: '{"model":"svc-code","messages":[{"role":"user","content":"Hello"}]}' },
}
