/** What operators see of the public listener: `app.metrics`, one log line per request, and the request counters of `docs/metrics.md`. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { Counter, Histogram, type Registry } from 'prom-client'
import type { Check } from './listener.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** The Prometheus registry that /metrics prints. Plugins add their own metrics to it. */
    metrics: { registry: Registry }
    /** What /readyz asks. A plugin that can be not ready adds a question. */
    checks: (() => Promise<Check> | Check)[]
  }
}

const LABELS = ['product', 'route', 'method', 'code']

async function ops(app: FastifyInstance, { registry }: { registry: Registry }): Promise<void> {
  app.decorate('metrics', { registry })
  app.decorate('checks', [() => storeAnswers(app), () => ({ name: 'broker', ...app.broker.health() })])
  const requests = new Counter({ name: 'tollgate_http_requests_total', help: 'Requests answered.', labelNames: LABELS, registers: [registry] })
  const durations = new Histogram({
    name: 'tollgate_http_request_duration_seconds',
    help: 'From the first byte of a request to the end of its answer.',
    labelNames: LABELS,
    buckets: [0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300],
    registers: [registry],
  })

  app.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id)
    const startMs = performance.now()
    // Read now: a socket that is gone has no address. Behind a proxy of TRUST_PROXY it is the client's.
    const { ip } = request
    // 'close' is the one event that comes however the answer ends, also when the client leaves in the middle of a stream.
    reply.raw.once('close', () => {
      const seconds = (performance.now() - startMs) / 1000
      const complete = reply.raw.writableFinished
      const labels = { product: request.routeOptions.config.api ?? 'none', route: routeOf(request), method: request.method, code: String(reply.raw.statusCode) }
      requests.inc(labels)
      durations.observe(labels, seconds)
      request.log.info({ ...labels, ip, status: reply.raw.statusCode, durationMs: Math.round(seconds * 1000), complete }, 'request')
    })
    done()
  })
}

const STORE_PATIENCE_MS = 2_000

/** A store that does not answer in time is away, whatever it does later. */
async function storeAnswers({ store }: FastifyInstance): Promise<Check> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('it does not answer')), STORE_PATIENCE_MS)
  })
  const detail = await Promise.race([store.clock().then(() => null), late]).catch((error: Error) => error.message)
  clearTimeout(timer)
  return { name: 'store', ok: detail === null, detail: detail ?? 'it answers' }
}

/** The route's template: a raw path would give every id a series of its own. */
function routeOf(request: FastifyRequest): string {
  return request.routeOptions.url ?? 'none'
}

export default fp(ops, { name: 'ops', fastify: '5.x' })
