/**
 * Operations listener: /livez, /readyz and /metrics on a separate port, so that no ingress can expose them. It starts before the backends:
 * a pod that waits for its database is alive and not ready.
 */
import fastify, { LogController, type FastifyBaseLogger, type FastifyInstance } from 'fastify'
import { collectDefaultMetrics, Registry } from 'prom-client'
import about from '../../package.json' with { type: 'json' }
import { metersOf } from '../../src/telemetry/metrics.ts'
import { exposition } from './exposition.ts'

/**
 * A readiness check of one dependency. The process is ready when all checks are ok. A check that is ok and degraded has failed, but
 * requests are served without it. `detail` is for the operator.
 */
export type Check = { name: string; ok: boolean; degraded?: boolean; detail: string }

export type OpsListener = {
  registry: Registry
  /** URL of the listener, such as http://127.0.0.1:9090. */
  url: string
  close(): Promise<void>
}

/** Opens the listener. `checks` is called at each /readyz and /metrics; all checks must be ok for a 200. Throws when the address is in use. */
export async function openOps(options: {
  host: string
  port: number
  role: string
  log: FastifyBaseLogger
  checks: () => Promise<Check[]>
}): Promise<OpsListener> {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const { gauge, gaugedBy } = metersOf(registry)
  gauge('tollgate_build_info', 'Always 1; the role and the version as labels.', 'role', 'version').set(
    { role: options.role, version: about.version },
    1,
  )
  gaugedBy('tollgate_check_ok', 'What /readyz asks: 1 in order, 0 not.', ['check'], async (gauge) => {
    const checks = await options.checks()
    gauge.reset()
    for (const { name, ok, degraded } of checks) gauge.set({ check: name }, ok && !degraded ? 1 : 0)
  })
  const app: FastifyInstance = fastify({
    loggerInstance: options.log,
    logController: new LogController({ disableRequestLogging: true }),
    requestTimeout: 10_000,
    // By default Node looks for late requests every 30 s.
    http: { connectionsCheckingInterval: 1_000 },
    forceCloseConnections: true,
  })
  app.get('/livez', async () => ({ status: 'alive' }))
  app.get('/readyz', async (_request, reply) => {
    const checks = await options.checks()
    const isReady = checks.every(({ ok }) => ok)
    const status = !isReady ? 'not ready' : checks.some(({ degraded }) => degraded) ? 'degraded' : 'ready'
    return reply.code(isReady ? 200 : 503).send({ status, checks })
  })
  app.get('/metrics', async (request, reply) => {
    const { contentType, text } = await exposition(registry, request.headers.accept)
    return reply.type(contentType).header('vary', 'accept').send(text)
  })
  const url = await app.listen({
    host: options.host,
    port: options.port,
    listenTextResolver: (address) => `operations listen on ${address}`,
  })
  return { registry, url, close: () => app.close() }
}
