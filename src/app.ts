/** Builds the program of a role: registers its plugins in the order of the request flow. A role loads its own alone. */
import { randomUUIDv7 } from 'node:crypto'
import fastify, { LogController, type FastifyInstance } from 'fastify'
import type { Registry } from 'prom-client'
import { openBodyBudget, type BodyBudget } from '../plugins/request-body/body-budget.ts'
import errors from '../plugins/errors/errors.ts'
import { answerUnparsable, answerUnroutable } from '../plugins/errors/malformed-requests.ts'
import ops from '../plugins/ops/ops.ts'
import type { Broker } from './backends/broker/broker.ts'
import type { Config } from './config/config.ts'
import { ConfigError } from './config/setting-types.ts'
import type { Role } from './config/needed-backends.ts'
import { openEgress, type Egress } from './egress/egress.ts'
import { REFUSALS } from './egress/target-url.ts'
import type { Engines } from './backends/engines/engine.ts'
import type { Files } from './backends/files/files.ts'
import { KINDS } from './domain/media-generations.ts'
import { OPERATIONS } from './domain/media-operations.ts'
import { containsKey, type SealingKeys } from './domain/api-keys.ts'
import type { DerivedKeys, KeyList } from './domain/derived-keys.ts'
import { linkedFile, signedFileUrl } from './domain/signed-urls.ts'
import type { PlanLimits } from './domain/plan-limits-by-namespace.ts'
import type { Resources } from './backends/resources/resources.ts'
import type { Backends, StartContext } from './bootstrap/open-backends.ts'
import { countMoney } from './bootstrap/backend-metrics.ts'
import { openStore, type Store } from './backends/store/store.ts'
import { partsAtRate } from './http/minimum-body-rate.ts'
import { BODY_MS } from './tasks/flat-charge.ts'
import { openSourceProbes } from './tasks/probe-sources.ts'
import { openUploads, type Uploads } from './tasks/receive-upload.ts'
import { openFileInfo } from './tasks/source-info.ts'
import type { SubmitContext } from './tasks/submit.ts'
import { monotonicUuids } from './tasks/task-ids.ts'
import type { Verified } from './verify/verify.ts'
import type { Upstreams } from './upstream/upstreams.ts'
import { metersOf } from './telemetry/metrics.ts'

declare module 'fastify' {
  // A backend that the role does not use is absent; a plugin that declares it then prevents startup.
  interface FastifyInstance {
    config: Config
    /** The store's time, epoch milliseconds. */
    clock: () => number
    store: Store
    resources: Resources
    upstreams: Upstreams
    sealingKeys: SealingKeys
    derivedKeys: DerivedKeys
    planLimits: PlanLimits | null
    broker: Broker
    engines: Engines
    egress: Egress
    /** The context of the task flows. */
    tasks: SubmitContext
    uploads: Uploads
  }
}

const MIB = 1024 * 1024

/** Builds the program of a role over its backends. Nothing listens and no loop runs before `ready()`. */
export function buildApp({ config, log, registry }: Omit<StartContext, 'wall'>, backends: Backends): FastifyInstance {
  const app: FastifyInstance = fastify({
    loggerInstance: log,
    logController: new LogController({ disableRequestLogging: true }),
    clientErrorHandler: answerUnparsable,
    frameworkErrors: answerUnroutable,
    // A coding request with its whole history must arrive within this time.
    requestTimeout: BODY_MS,
    keepAliveTimeout: 72_000,
    routerOptions: { maxParamLength: 200 },
    // Node looks for late requests every 30 s by default.
    http: { headersTimeout: 20_000, connectionsCheckingInterval: 1_000 },
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    trustProxy: config.TRUST_PROXY.length > 0 ? config.TRUST_PROXY : false,
    // Pino creates a child logger without options several times faster.
    childLoggerFactory: (logger, bindings) => logger.child(bindings),
    genReqId: ({ headers }) => requestId(headers['x-request-id']),
  })
  app.decorate('config', config)
  const { store, clock, sealingKeys, derivedKeys, resources, upstreams, broker, files: results, engines } = backends
  app.decorate('clock', clock.now)
  app.decorate('store', store)
  if (sealingKeys) app.decorate('sealingKeys', sealingKeys)
  app.decorate('derivedKeys', derivedKeys)
  app.decorate('planLimits', backends.planLimits)
  if (resources) app.decorate('resources', resources)
  if (upstreams) app.decorate('upstreams', upstreams)
  if (broker) app.decorate('broker', broker)
  if (results) app.decorate('files', results)
  if (engines) app.decorate('engines', engines)
  app.decorate('publicUrl', () => publicUrl(app))
  app.decorate('egress', openGuard(config, clock.now, registry, log))
  app.addHook('onClose', async () => app.egress.close())
  if (broker && engines && results)
    decorateTasks(app, {
      store,
      broker,
      files: results,
      engines,
      links: derivedKeys.links,
      moved: countMoney(registry, config.METRICS_TENANT),
    })
  app.register(errors)
  app.register(ops, { registry }).after(() => {
    app.checks.push(clock.check)
    if (!backends.keysFit)
      app.checks.push(() => ({
        name: 'sealing key',
        ok: false,
        detail: 'SEALING_KEY_FILE is not the file that sealed the keys of this store',
      }))
  })
  const budget = openBudget(config, registry)
  const runs = (...roles: Role[]) => config.ROLE === 'all' || roles.includes(config.ROLE)
  // After all plugins could add engines, before any loop runs.
  if (engines) app.addHook('onReady', () => engines.ready())
  if (runs('gateway')) {
    if (config.CORS_ORIGINS.length > 0) app.register(import('../plugins/cors/cors.ts'))
    app.register(import('../plugins/docs/docs.ts'))
    app.register(import('../plugins/files/files.ts'))
    app.register(import('../plugins/task-watch/task-watch.ts'))
  }
  // Every role that reads the routing table needs the engines of third-party plugins. Only a gateway serves their routes.
  if (runs('gateway') || (engines && config.PLUGINS.length > 0)) {
    app.register(async (gateway) => {
      gateway.register(import('../plugins/auth/auth.ts'))
      gateway.register(import('../plugins/request-body/request-body.ts'), { budget })
      // Before metering: plugins end in reverse order, and the end of metering settles the last requests.
      if (runs('gateway')) gateway.register(import('../plugins/request-history/request-history.ts'))
      gateway.register(import('../plugins/metering/metering.ts'))
      if (runs('gateway')) {
        gateway.register(import('../plugins/openai/openai.ts'))
        gateway.register(import('../plugins/media/media.ts'), { prefix: '/api/v1' })
        gateway.register(import('../plugins/mcp/mcp.ts'))
      }
      if (runs('gateway') && config.PROXY_ROUTES !== null)
        gateway.register(import('../plugins/proxy/proxy.ts'), { file: config.PROXY_ROUTES })
      gateway.register(import('../plugins/third-party/third-party.ts'), { entries: config.PLUGINS })
    })
  }
  if (runs('gateway')) app.register(import('../plugins/dashboard/dashboard.ts'), { mediaRoutes: keylessMedia(budget) })
  if (runs('gateway', 'worker')) app.register(import('../plugins/usage-records/usage-records.ts'))
  if (runs('worker')) app.register(import('../plugins/worker/worker.ts'), { kinds: workerKinds(config) })
  if (runs('dispatcher')) app.register(import('../plugins/dispatcher/dispatcher.ts'))
  if (runs('controller')) app.register(import('../plugins/controller/controller.ts'))
  return app
}

/** The Media API for sessions of the dashboard. */
function keylessMedia(budget: BodyBudget): (scope: FastifyInstance) => Promise<void> {
  return async (scope) => {
    await scope.register(import('../plugins/request-body/request-body.ts'), { budget })
    await scope.register(import('../plugins/media/media.ts'), { keyless: true })
  }
}

/** The memory of request bodies, of keys and sessions alike. */
function openBudget({ BODY_MEMORY_MIB }: Config, registry: Registry): BodyBudget {
  const budget = openBodyBudget(BODY_MEMORY_MIB * MIB)
  metersOf(registry).gaugedBy('tollgate_body_memory_bytes', 'Memory that request bodies hold.', [], (gauge) => gauge.set(budget.held()))
  return budget
}

/** The egress guard. Throws a `ConfigError` when EGRESS_ALLOW is invalid. */
function openGuard(config: Config, clock: () => number, registry: Registry, log: StartContext['log']): Egress {
  const refusals = metersOf(registry).counter('tollgate_egress_refused_total', 'Addresses that the egress guard refused.', 'reason')
  try {
    const refused = (reason: string, host?: string) => {
      refusals.inc({ reason })
      if (host !== undefined)
        log.warn({ event: 'egress_refused', reason, host }, 'egress refused: a host name resolves to an address that is not allowed')
    }
    return openEgress({ allow: config.EGRESS_ALLOW, clock, refused })
  } catch (error) {
    throw new ConfigError('EGRESS_ALLOW', config.EGRESS_ALLOW.join(','), `addresses, networks and hosts (${(error as Error).message})`)
  }
}

/** The kinds that this worker runs. Throws a `ConfigError` on an unknown kind. */
function workerKinds({ WORKER_KINDS }: Config): string[] {
  const kinds: readonly string[] = [...KINDS, ...OPERATIONS]
  if (WORKER_KINDS.some((kind) => !kinds.includes(kind)))
    throw new ConfigError('WORKER_KINDS', WORKER_KINDS.join(','), `some of ${kinds.join(', ')}, or empty`)
  return WORKER_KINDS.length > 0 ? WORKER_KINDS : [...kinds]
}

type TaskParts = { store: Store; broker: Broker; files: Files; engines: Engines; links: KeyList; moved: SubmitContext['moved'] }

function decorateTasks(app: FastifyInstance, { store, broker, files: results, engines, links, moved }: TaskParts): void {
  const refusedUrl = (url: string) => {
    const refusal = app.egress.check(url)
    return refusal && REFUSALS[refusal]
  }
  const tasks: SubmitContext = {
    store,
    files: results,
    engines,
    refusedUrl,
    fileInfo: openFileInfo(results),
    probeSources: openSourceProbes({ egress: app.egress, clock: app.clock }),
    clock: app.clock,
    uuid: monotonicUuids(randomUUIDv7),
    random: Math.random,
    publish: broker.publish,
    moved,
    link: ({ file, expiresAt }) => `${publicUrl(app)}${signedFileUrl(file, expiresAt, links)}`,
    linkedFile: (url) => linkedFile(url, links),
    resultMs: app.config.RESULT_MS,
    log: app.log,
  }
  app.decorate('tasks', tasks)
  app.decorate('uploads', openUploads(tasks, partsAtRate))
}

/** The address at which clients reach this process: PUBLIC_URL, else the listener's, whose port 0 resolves only once it listens. */
export function publicUrl(app: FastifyInstance): string {
  const address = app.server.address()
  const port = typeof address === 'object' && address !== null ? address.port : app.config.PORT
  return app.config.PUBLIC_URL ?? `http://${app.config.HOST.includes(':') ? `[${app.config.HOST}]` : app.config.HOST}:${port}`
}

/** Keeps a client's request id when it is fit for a log, else creates one, by whose time `tollgate trace` finds its task. */
function requestId(given: string | string[] | undefined): string {
  const isSafe = typeof given === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(given) && !containsKey(given)
  return isSafe ? given : randomUUIDv7()
}

/** `tollgate verify`: reads the whole store, which may be in use, and returns the violated invariants. */
export async function verify(config: Config): Promise<Verified> {
  const { verifyStore } = await import('./verify/verify.ts')
  const store = await openStore(config.STORE_URL, { readOnly: true })
  try {
    const now = await store.clock()
    return await verifyStore(store, { now, keptSince: now - config.TASK_MS, eventsKeptSince: now - config.EVENT_MS })
  } finally {
    await store.close()
  }
}
