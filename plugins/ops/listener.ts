/**
 * /livez, /readyz and /metrics on a listener of their own, so that no ingress can expose them. It is up before the doors are: a pod that waits for its database
 * is alive and not ready.
 */
import fastify, { LogController, type FastifyBaseLogger, type FastifyInstance } from 'fastify'
import { collectDefaultMetrics, Registry } from 'prom-client'

/** One thing that must be in order before we are ready. `detail` is for the operator. */
export type Check = { name: string; ok: boolean; detail: string }

export type OpsListener = {
  registry: Registry
  /** Where it listens, such as http://127.0.0.1:9090. */
  url: string
  close(): Promise<void>
}

/** Opens the listener. `checks` is asked at each /readyz; every one must be ok for a 200. Throws when the address is taken. */
export async function openOps(options: { host: string; port: number; log: FastifyBaseLogger; checks: () => Promise<Check[]> }): Promise<OpsListener> {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const app: FastifyInstance = fastify({ loggerInstance: options.log, logController: new LogController({ disableRequestLogging: true }), requestTimeout: 10_000, forceCloseConnections: true })
  app.get('/livez', async () => ({ status: 'alive' }))
  app.get('/readyz', async (_request, reply) => {
    const checks = await options.checks()
    const ready = checks.every(({ ok }) => ok)
    return reply.code(ready ? 200 : 503).send({ status: ready ? 'ready' : 'not ready', checks })
  })
  app.get('/metrics', async (_request, reply) => reply.type(registry.contentType).send(await registry.metrics()))
  const url = await app.listen({ host: options.host, port: options.port, listenTextResolver: (address) => `operations listen on ${address}` })
  return { registry, url, close: () => app.close() }
}
