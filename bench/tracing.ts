/** The cost of traces: CPU time that the spans of one completion take, when traces are off, sampled at 1 %, and all recorded. `node bench/tracing.ts` */
import { openTracer } from '../src/tracing/opentelemetry.ts'
import { startSpan, traced, useTracer } from '../src/tracing/tracing.ts'

const REQUESTS = 50_000

/** The spans of a completion: the request, its admission, two store verbs, the attempt. */
async function completion(): Promise<void> {
  const span = startSpan('POST /v1/chat/completions', { kind: 'server', parent: null, attributes: { 'http.request.method': 'POST', 'http.route': '/v1/chat/completions', 'url.scheme': 'http' } })
  await span.run(async () => {
    await traced('admission', { within: true }, () => traced('store change', { kind: 'client', within: true, attributes: { 'db.system.name': 'mongodb', 'db.operation.name': 'change' } }, async () => {}))
    await traced('upstream attempt', { kind: 'client', within: true, attributes: { 'gen_ai.operation.name': 'chat', 'server.port': 443 } }, async () => {})
    await traced('store change', { kind: 'client', within: true, attributes: { 'db.system.name': 'mongodb', 'db.operation.name': 'change' } }, async () => {})
  })
  span.set({ 'http.response.status_code': 200 })
  span.end()
}

async function cpuMicrosPerRequest(): Promise<number> {
  for (let i = 0; i < REQUESTS; i++) await completion()
  const before = process.cpuUsage()
  for (let i = 0; i < REQUESTS; i++) await completion()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / REQUESTS
}

const batch = { scheduledDelayMillis: 5_000, maxQueueSize: 2_048, maxExportBatchSize: 512, exportTimeoutMillis: 1_000 }
console.log(`off: ${(await cpuMicrosPerRequest()).toFixed(2)} µs`)
for (const ratio of [0.01, 1]) {
  const tracer = openTracer({ sampler: 'parentbased_traceidratio', ratio, batch }, {}, () => {})
  useTracer(tracer)
  console.log(`${ratio * 100} %: ${(await cpuMicrosPerRequest()).toFixed(2)} µs`)
  useTracer(null)
  await tracer.close()
}
process.exit(0)
