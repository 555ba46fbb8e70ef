/** Access log and HTTP metrics of the public listener, and the metrics registry `app.metrics` (`docs/metrics.md`). */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { Histogram, type Registry } from 'prom-client'
import type { Usage } from '../../src/domain/token-windows.ts'
import { metersOf } from '../../src/telemetry/metrics.ts'
import { isTracing, logFields, sampledTraceId, type Span } from '../../src/telemetry/tracing.ts'
import { endRequestSpan, requestSpans } from './request-span.ts'
import { backendChecks } from './readiness-checks.ts'
import type { Check } from './ops-listener.ts'

/**
 * Fields of a log line that are known once a request is settled. An object, because V8 kept a function in this property, and with it the whole request, until the next collection of the old
 * generation.
 */
export type LaterFields = {
  /** Calls `told`, given when the response closes, once. */
  whenSettled(told: (fields: Record<string, unknown>) => void): void
}

/** With the later fields of a coding request. */
export type EndedLine = {
  status: number
  code?: string
  durationMs: number
  /** The client has the whole answer. */
  complete: boolean
  reservation?: string
  tokens?: Usage
  charged?: number | null
}

declare module 'fastify' {
  interface FastifyInstance {
    /** The Prometheus registry that /metrics prints. Plugins add their own metrics to it. */
    metrics: { registry: Registry }
    /** Readiness checks of /readyz. A plugin that can be not ready adds one. */
    checks: (() => Promise<Check> | Check)[]
    /** Called with each request that has ended and is settled, and the fields of its log line. */
    endings: ((request: FastifyRequest, line: EndedLine) => void)[]
  }
  interface FastifyRequest {
    /** Time of arrival, by `performance.now()`. */
    startedMs: number
    /** Has further fields of the log line, which are known later. Null: there are none. */
    logged: LaterFields | null
    /** The server span; hooks and handlers run in it. */
    span: Span
  }
}

const LABELS = ['product', 'route', 'method', 'code']

async function ops(app: FastifyInstance, { registry }: { registry: Registry }): Promise<void> {
  app.decorate('metrics', { registry })
  app.decorate('checks', backendChecks(app))
  app.decorate('endings', [])
  const requests = metersOf(registry).counter('tollgate_http_requests_total', 'Requests answered.', ...LABELS)
  const durations = new Histogram({
    name: 'tollgate_http_request_duration_seconds',
    help: 'From the first byte of a request to the end of its answer.',
    labelNames: LABELS,
    buckets: [0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300],
    enableExemplars: true,
    // prom-client refuses exemplars in the constructor where the registry's own format has none.
    registers: [],
  })
  registry.registerMetric(durations)

  // Looking up labels builds a string: done once per kind of answer instead of once per answer.
  const kinds = new Map<
    string,
    { facts: Record<string, string>; count: () => void; observe: (seconds: number, traceId: string | null) => void }
  >()
  const kindOf = ({ routeOptions, method }: FastifyRequest, status: number) => {
    const name = `${method} ${status} ${routeOptions.url}`
    const known = kinds.get(name)
    if (known) return known
    // The route's template: raw paths would create a series per id.
    const facts = { product: routeOptions.config.api ?? 'none', route: routeOptions.url ?? 'none', method }
    const labels = { ...facts, code: String(status) }
    const [counter, histogram] = [requests.labels(labels), durations.labels(labels)]
    const observe = (value: number, traceId: string | null) =>
      traceId === null ? histogram.observe(value) : durations.observe({ labels, value, exemplarLabels: { trace_id: traceId } })
    const kind = { facts, count: () => counter.inc(), observe }
    kinds.set(name, kind)
    return kind
  }

  const spanOf = requestSpans(app.config)
  app.decorateRequest('startedMs', 0)
  app.decorateRequest('logged', null)
  app.decorateRequest('span')
  app.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id)
    request.startedMs = performance.now()
    request.span = spanOf(request)
    // Read now: a closed socket has no address. Behind a proxy of TRUST_PROXY it is the client's.
    const { ip } = request
    // 'close' is the only event of every ending, including a client that disconnects during a stream.
    reply.raw.once('close', () => {
      const durationMs = performance.now() - request.startedMs
      const { statusCode: status, writableFinished: complete } = reply.raw
      const { facts, count, observe } = kindOf(request, status)
      count()
      observe(durationMs / 1000, sampledTraceId(request.span.traceparent))
      const line = {
        ...facts,
        status,
        ...(request.failed ? { code: request.failed.code, ...(request.failed.limit ? { limit: request.failed.limit } : {}) } : {}),
        ip,
        durationMs: Math.round(durationMs),
        complete,
        ...logFields(request.span.traceparent),
      }
      const endedAtMs = Date.now()
      const finish = (more: Record<string, unknown>) => {
        const ended = { ...line, ...more }
        request.log.info(ended, 'request')
        for (const told of app.endings) told(request, ended)
        endRequestSpan(request.span, request, status, more, endedAtMs)
      }
      if (request.logged) request.logged.whenSettled(finish)
      else finish({})
    })
    request.span.run(done)
  })
  // A body is parsed in the context of its connection.
  if (isTracing()) app.addHook('preValidation', (request, _reply, done) => request.span.run(done))
}

export default fp(ops, { name: 'ops', fastify: '5.x', decorators: { fastify: ['clock', 'config', 'store'], request: ['failed'] } })
