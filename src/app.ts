/** The list: opens the doors, then registers the plugins of each role in the order in which a request flows through them. */
import { randomBytes, randomUUID, randomUUIDv7 } from 'node:crypto'
import { link, mkdir, readFile, unlink, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import fastify, { LogController, type FastifyBaseLogger, type FastifyInstance } from 'fastify'
import { Counter, type Registry } from 'prom-client'
import auth from '../plugins/auth/auth.ts'
import dispatcher from '../plugins/dispatcher/dispatcher.ts'
import docs from '../plugins/docs/docs.ts'
import files from '../plugins/files/files.ts'
import mcp from '../plugins/mcp/mcp.ts'
import intake from '../plugins/intake/intake.ts'
import media from '../plugins/media/media.ts'
import worker from '../plugins/worker/worker.ts'
import controller from '../plugins/controller/controller.ts'
import errors from '../plugins/errors/errors.ts'
import { answerUnparsable, answerUnroutable } from '../plugins/errors/unparsable.ts'
import metering from '../plugins/metering/metering.ts'
import openai from '../plugins/openai/openai.ts'
import ops from '../plugins/ops/ops.ts'
import thirdParty from '../plugins/third-party/third-party.ts'
import { openBroker, type Broker } from './broker/broker.ts'
import { ConfigError, embeddedPaths, type Config, type Role } from './config.ts'
import { openEgress, type Egress } from './egress/egress.ts'
import { REFUSALS } from './egress/target.ts'
import { openEngines, type Engines } from './engines/engine.ts'
import { openFiles, type Files } from './files/files.ts'
import { parseSealingKeys, type SealingKeys } from './keys.ts'
import { fileLink } from './links.ts'
import { apiOf, type Api } from './plans.ts'
import { parsePlanLimits, type PlanLimits } from './plan-limits.ts'
import { openResources, type Resources } from './resources/resources.ts'
import { openStore, type Store } from './store/store.ts'
import type { SubmitDoors } from './tasks/submit.ts'
import { verifyStore, type Verified } from './verify/verify.ts'
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
    broker: Broker
    engines: Engines
    egress: Egress
    /** What the flows of a task stand on. */
    tasks: SubmitDoors
  }
}

/** Everything that a role stands on, opened before any plugin is. */
export type Doors = {
  store: Store
  resources: Resources
  upstreams: Upstreams
  broker: Broker
  files: Files
  engines: Engines
  sealingKeys: SealingKeys
  planLimits: PlanLimits | null
  /** In reverse order of opening. Closing twice is harmless. */
  close(): Promise<void>
}

type Surroundings = { config: Config; log: FastifyBaseLogger; clock: () => number }

/** Opens every door. One that is away is tried again with back-off until `stop` is aborted; nonsense throws at once. */
export async function openDoors({ config, log }: Surroundings, open: Opener): Promise<Doors> {
  await mkdir(config.DATA_DIR, { recursive: true, mode: 0o700 }).catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError('DATA_DIR', config.DATA_DIR, `a folder that can be made and written (${error.code})`)
  })
  const planLimits = config.PLAN_LIMITS === null ? null : await readPlanLimits(config.PLAN_LIMITS)
  const opened: { close(): Promise<void> }[] = []
  const keep = <T extends { close(): Promise<void> }>(door: T) => {
    opened.unshift(door)
    return door
  }
  const close = async () => {
    for (const door of opened) await door.close()
  }
  try {
    const store = keep(await open('store', () => openStore(config.STORE_URL)))
    const sealingKeys = await openSealingKeys(config.SEALING_KEY_FILE, store)
    const resources = keep(
      await open('resources', () => openResources({ url: config.RESOURCES_URL, dataDir: config.DATA_DIR, declarations: store, log })),
    )
    const upstreams = keep(await open('upstreams', () => openUpstreams({ file: config.UPSTREAMS, env: config.env, log })))
    const broker = keep(await open('broker', () => openBroker(config.BROKER_URL)))
    const files = keep(await open('files', () => openFiles(config.FILES_URL)))
    const engines = keep(await open('engines', () => openEngines({ file: config.ENGINES, log })))
    return { store, resources, upstreams, broker, files, engines, sealingKeys, planLimits, close }
  } catch (error) {
    await close()
    throw error
  }
}

/** Opens one door by its name, however long that takes. */
export type Opener = <T>(name: string, open: () => Promise<T>) => Promise<T>

/** Reads the keys that seal API keys. The embedded side makes the file at its first start. Throws a `ConfigError` when it is not what it must be. */
async function openSealingKeys(file: string, store: Store): Promise<SealingKeys> {
  const text = await readFile(file, 'utf8').catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw new ConfigError('SEALING_KEY_FILE', file, `a file that can be read (${error.code})`)
    if ((await store.keysAlive('', 1)).length > 0) throw new ConfigError('SEALING_KEY_FILE', file, 'the file that sealed the keys of this store, and that is gone: put it back')
    const made = `${randomBytes(32).toString('base64')}\n`
    await mkdir(dirname(file), { recursive: true, mode: 0o700 })
    // Whole or not at all, and never over another's: without this file every sealed key is lost.
    const whole = `${file}.${randomUUID()}`
    await writeFile(whole, made, { mode: 0o600, flag: 'wx', flush: true })
    await link(whole, file).finally(() => unlink(whole))
    return made
  })
  const keys = parseSealingKeys(text)
  if (!keys) throw new ConfigError('SEALING_KEY_FILE', file, 'a file with 32 bytes in base64 on each line')
  return keys
}

async function readPlanLimits(file: string): Promise<PlanLimits> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError('PLAN_LIMITS', file, `a file that can be read (${error.code})`)
  })
  const read = parsePlanLimits(text)
  if (read.outcome === 'refused') throw new ConfigError('PLAN_LIMITS', file, `a file of plan limits (${read.reason})`)
  return read.limits
}

/** Fastify's own limits on what a client controls. A body as large as a coding request's has this long to arrive. */
const LIMITS = { requestTimeout: 120_000, headersTimeout: 20_000, keepAliveTimeout: 72_000, maxParamLength: 200 }

/** Builds the program of a role over its doors: nothing listens and no loop runs before `ready()`. */
export function buildApp(surroundings: Surroundings, doors: Doors, registry: Registry): FastifyInstance {
  const { config, log, clock } = surroundings
  const app: FastifyInstance = fastify({
    loggerInstance: log,
    logController: new LogController({ disableRequestLogging: true }),
    clientErrorHandler: answerUnparsable,
    frameworkErrors: answerUnroutable,
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
  app.decorate('broker', doors.broker)
  app.decorate('files', doors.files)
  app.decorate('engines', doors.engines)
  app.decorate('egress', openGuard(config, clock, registry))
  app.decorate('tasks', taskDoors(app, doors))
  app.register(errors)
  app.register(ops, { registry })
  const runs = (...roles: Role[]) => config.ROLE === 'all' || roles.includes(config.ROLE)
  // After every plugin had its chance to add engines, and before any loop runs.
  if (runs('gateway', 'worker')) app.addHook('onReady', () => doors.engines.ready())
  if (runs('gateway')) {
    app.register(docs)
    app.register(files)
  }
  // A worker needs the engines of third-party plugins. Their routes are behind keys there too.
  if (runs('gateway') || (runs('worker') && config.PLUGINS.length > 0)) {
    app.register(async (gateway) => {
      gateway.register(auth)
      gateway.register(intake)
      gateway.register(metering)
      if (runs('gateway')) {
        gateway.register(openai)
        gateway.register(media, { prefix: '/api/v1' })
        gateway.register(mcp)
      }
      gateway.register(thirdParty, { entries: config.PLUGINS })
    })
  }
  if (runs('worker')) app.register(worker)
  if (runs('dispatcher')) app.register(dispatcher)
  if (runs('controller')) app.register(controller)
  return app
}

/** The guard on addresses that a tenant gave. Throws a `ConfigError` when EGRESS_ALLOW makes no sense. */
function openGuard(config: Config, clock: () => number, registry: Registry): Egress {
  const refusals = new Counter({ name: 'tollgate_egress_refused_total', help: 'Addresses that the egress guard refused.', labelNames: ['reason'], registers: [registry] })
  try {
    return openEgress({ allow: config.EGRESS_ALLOW, clock, refused: (reason) => refusals.inc({ reason }) })
  } catch (error) {
    throw new ConfigError('EGRESS_ALLOW', config.EGRESS_ALLOW.join(','), `addresses, networks and hosts (${(error as Error).message})`)
  }
}

function taskDoors(app: FastifyInstance, { store, broker, engines, sealingKeys }: Doors): SubmitDoors {
  const refusedUrl = (url: string) => {
    const refusal = app.egress.check(url)
    return refusal && REFUSALS[refusal]
  }
  return {
    store,
    engines,
    refusedUrl,
    clock: app.clock,
    uuid: randomUUIDv7,
    random: Math.random,
    ring: broker.ring,
    link: ({ file, expiresAt }) => `${publicUrl(app)}${fileLink(file, expiresAt, sealingKeys)}`,
    log: app.log,
  }
}

/** How the world reaches us. Without PUBLIC_URL that is where we listen, which a port of 0 tells only then. */
function publicUrl(app: FastifyInstance): string {
  const address = app.server.address()
  const port = typeof address === 'object' && address !== null ? address.port : app.config.PORT
  return app.config.PUBLIC_URL ?? `http://${app.config.HOST.includes(':') ? `[${app.config.HOST}]` : app.config.HOST}:${port}`
}

/** A client's own request id is kept if it is fit for a log, else one is made. */
function requestId(given: string | string[] | undefined): string {
  return typeof given === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(given) ? given : randomUUID()
}

/** A first start has a handful; whoever has more knows where they lie. */
const MOST_KEYS_NAMED = 10

/** What a person needs once the program is ready: the addresses, where the keys lie, and a request of each product to paste. */
export function greeting(app: FastifyInstance, url: string, opsUrl: string): { text: string; facts: Record<string, unknown> } {
  const base = publicUrl(app)
  const keys = app.resources
    .list('ApiKey')
    .filter(({ spec }) => spec.secretName !== undefined && spec.state === 'Active')
    .slice(0, MOST_KEYS_NAMED)
    .map((key) => {
      const plan = app.resources.get({ kind: 'Plan', namespace: key.metadata.namespace, name: key.spec.planRef.name })
      const api = plan?.kind === 'Plan' ? apiOf(plan.spec.product) : null
      const file = join(embeddedPaths(app.config.DATA_DIR).secrets, key.metadata.namespace, key.spec.secretName ?? '', 'api-key')
      return { name: `${key.metadata.namespace}/${key.metadata.name}`, api, file }
    })
  const curls = (['coding', 'media'] as const).flatMap((api) => {
    const key = keys.find((candidate) => candidate.api === api)
    return key ? [`curl ${base}${PASTE[api].path} -H "Authorization: Bearer $(cat '${key.file}')" -H 'Content-Type: application/json' -d '${PASTE[api].body}'`] : []
  })
  const text = [
    `Tollgate serves ${base}, operations ${opsUrl}`,
    ...keys.map(({ name, file }) => `Key ${name}: ${file}`),
    ...(curls.length > 0 ? ['Try it:', ...curls.map((line) => `  ${line}`)] : []),
  ].join('\n')
  return { text, facts: { url, opsUrl, publicUrl: base, keys: keys.map(({ name, file }) => ({ name, file })), try: curls } }
}

const PASTE: Record<Api, { path: string; body: string }> = {
  coding: { path: '/v1/chat/completions', body: '{"model":"svc-code","messages":[{"role":"user","content":"Hello"}]}' },
  media: { path: '/api/v1/generations', body: '{"kind":"image","prompt":"A lighthouse at dawn"}' },
}

/** `tollgate verify`: reads the whole store, which may be in use, and says what is not as it must be. */
export async function verify(config: Config, now: number): Promise<Verified> {
  const store = await openStore(config.STORE_URL)
  try {
    return await verifyStore(store, { now, keptSince: now - config.TASK_DAYS })
  } finally {
    await store.close()
  }
}
