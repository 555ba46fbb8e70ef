/** Traces of the running program, at a receiver that decodes OTLP by its published definitions. */
import { createServer } from 'node:net'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { readTraceSettings } from '../../src/config/trace-settings.ts'
import { openOtlpReceiver, type OtlpReceiver } from '../fakes/otlp-receiver.ts'
import type { ExportedSpan } from '../fakes/otlp-protobuf.ts'
import { eventually } from '../flows/eventually.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { REPOSITORY, start, type Program } from '../flows/program.ts'
import { SIDE_TIMEOUT_MS, SIDES, type Start } from '../flows/sides.ts'
import { ownCollector } from '../servers/otel-collector.ts'
import { apiKey, codingPlan, declare, mediaPlan } from '../flows/manifests.ts'
import { listening } from '../fakes/listening.ts'

t.setTimeout(SIDE_TIMEOUT_MS)

const KINDS = { server: 2, client: 3, producer: 4, consumer: 5 }

const demo: Start = ({ folder, env = {} }) => start({ folder, env: { RESOURCES_URL: `files:${join(REPOSITORY, 'plans')}`, ...env }, namespace: 'demo' })

async function running(t: Test, env: Record<string, string>, begin: Start = demo): Promise<Program> {
  const program = await begin({ folder: t.testdir(), env })
  t.teardown(() => program.kill())
  return program
}

const chat = (program: Program, key: string, headers: Record<string, string> = {}, more: object = {}) =>
  fetch(`${program.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ model: 'svc-code', messages: [{ role: 'user', content: 'a very secret prompt' }], ...more }),
  })

/** The chain of names from a span to the root of its trace. */
function lineage(otlp: OtlpReceiver, span: ExportedSpan): string[] {
  const parent = otlp.spans.find(({ spanId, traceId }) => spanId === span.parent && traceId === span.traceId)
  return [span.name, ...(parent ? lineage(otlp, parent) : [])]
}

for (const side of SIDES) {
  t.test(`a task is one trace from its request to its webhook, and a failing upstream is an error of its span and of the request, without its message (${side.name})`, async (t) => {
    const begin = await side.open(t)
    if (begin === null) return
    const otlp = await openOtlpReceiver(t)
    const receiver = await openReceiver(t)
    const folder = t.testdir()
    await declare(folder, 'plans', mediaPlan('studio'), apiKey('media', 'studio'), codingPlan('coder'), apiKey('coding', 'coder'))
    await writeFile(join(folder, 'upstreams.yaml'), 'upstreams: [{name: hidden, baseUrl: "http://127.0.0.1:9", model: m, wire: chat, retry: {attempts: 1}}]')
    const program = await begin({ folder, env: { ...otlp.env, EGRESS_ALLOW: '127.0.0.1/32', UPSTREAMS: join(folder, 'upstreams.yaml') } })
    t.teardown(() => program.kill())
    const key = await program.key('media')
    const body = { kind: 'image', prompt: 'a very secret prompt', size: '64x64', webhook_url: `${receiver.url}/very-secret-path` }
    const answer = await fetch(`${program.url}/api/v1/generations`, { method: 'POST', headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` }, body: JSON.stringify(body) })
    t.equal(answer.status, 202)
    t.same([...answer.headers.keys()].filter((name) => name.startsWith('trace')), [])
    const [webhook] = await receiver.arrived(1)
    const request = await otlp.span('POST /api/v1/generations')
    const delivered = await otlp.span('deliver webhook')
    const ran = await otlp.span('run image')
    const engine = await otlp.span('engine run')
    const { traceId } = request
    t.not(traceId, 'a'.repeat(32), 'the trace of a stranger is not continued')
    t.same(request.links, [{ traceId: 'a'.repeat(32), spanId: 'b'.repeat(16) }])
    t.match(request, { kind: KINDS.server, parent: '', status: 0, attributes: { 'http.request.method': 'POST', 'http.route': '/api/v1/generations', 'http.response.status_code': 202, 'url.scheme': 'http', 'tollgate.tenant': 'acme' } })
    t.same(lineage(otlp, engine), ['engine run', 'run image', 'submit task', 'POST /api/v1/generations'])
    t.same(lineage(otlp, delivered), ['deliver webhook', 'submit task', 'POST /api/v1/generations'])
    t.same(lineage(otlp, await otlp.span('store createTask')), ['store createTask', 'submit task', 'POST /api/v1/generations'])
    t.match(await otlp.span('store moveTask'), { kind: KINDS.client, attributes: { 'db.system.name': side.name === 'embedded' ? 'sqlite' : 'mongodb', 'db.operation.name': 'moveTask' } })
    t.match(ran, { kind: KINDS.consumer, attributes: { 'tollgate.task.kind': 'image', 'tollgate.task.outcome': 'completed', 'tollgate.task.attempt': 1 } })
    t.match(delivered, { kind: KINDS.client, attributes: { 'tollgate.webhook.event': 'task.completed', 'tollgate.webhook.outcome': 'delivered', 'http.request.resend_count': 0 } })
    t.equal(webhook?.headers['traceparent'], `00-${traceId}-${delivered.spanId}-01`)
    t.ok([engine, delivered, ran].every((span) => span.traceId === traceId && span.endNs >= span.startNs))
    if (side.name === 'distributed') {
      t.same([request, ran, delivered].map(({ resource }) => resource['tollgate.role']), ['gateway', 'worker', 'dispatcher'])
      const isOfImage = ({ attributes }: ExportedSpan) => String(attributes['messaging.destination.name']).endsWith('.image')
      const sent = await eventuallyOne(otlp, 'send', isOfImage)
      t.match(sent, { kind: KINDS.producer, attributes: { 'messaging.system': 'kafka', 'messaging.operation.type': 'send' } })
      t.same(lineage(otlp, sent).slice(1), ['submit task', 'POST /api/v1/generations'])
      const processed = await eventuallyOne(otlp, 'process', isOfImage)
      t.match(processed, { kind: KINDS.consumer, parent: sent.spanId, resource: { 'tollgate.role': 'worker' } })
    }
    const line = await eventually('the log line of the request', async () => program.log.map((text) => JSON.parse(text)).find(({ msg, route }) => msg === 'request' && route === '/api/v1/generations') ?? null)
    t.match(line, { trace_id: traceId, span_id: request.spanId })
    t.match(await eventually('the log line of the run', async () => program.log.map((text) => JSON.parse(text)).find(({ msg }) => msg === 'task ran') ?? null), { trace_id: traceId })
    const failed = await chat(program, await program.key('coding'))
    t.equal(failed.status, 503)
    t.notMatch(JSON.stringify([...failed.headers]), /hidden/)
    t.match(await otlp.span('upstream attempt'), { status: 2, attributes: { 'server.port': 9 } })
    t.match(await otlp.span('POST /v1/chat/completions'), { status: 2, attributes: { 'error.type': 'server_overloaded', 'http.response.status_code': 503 } })
    t.notMatch(otlp.text(), /very.secret/)
    t.notOk(otlp.text().includes(key) || otlp.text().includes(receiver.url))
  })
}

/** Names of messaging spans have the topic in them. */
function eventuallyOne(otlp: OtlpReceiver, operation: string, accept: (span: ExportedSpan) => boolean): Promise<ExportedSpan> {
  return eventually(`a span to ${operation}`, async () => otlp.spans.find((span) => span.name.startsWith(`${operation} `) && accept(span)) ?? null)
}

t.test('spans of completions, behind a proxy that is trusted', async (t) => {
  const otlp = await openOtlpReceiver(t)
  const program = await running(t, { ...otlp.env, TRUST_PROXY: '127.0.0.0/8' })
  const key = await program.key('demo-coding-key')

  await t.test('a completion is a trace with admission, store, the attempt at the upstream, and its tokens', async (t) => {
    t.equal((await chat(program, key)).status, 200)
    const request = await otlp.span('POST /v1/chat/completions')
    t.match(request.attributes, { 'http.response.status_code': 200, 'tollgate.product': 'coding' })
    t.type(request.attributes['gen_ai.usage.output_tokens'], 'number')
    const attempt = await otlp.span('upstream attempt')
    t.same(lineage(otlp, attempt), ['upstream attempt', 'POST /v1/chat/completions'])
    t.match(attempt, { kind: KINDS.client, attributes: { 'gen_ai.operation.name': 'chat', 'gen_ai.request.model': 'echo', 'tollgate.upstream': 'echo' } })
    t.same(lineage(otlp, await otlp.span('store decide')), ['store decide', 'admission', 'POST /v1/chat/completions'])
    t.notMatch(otlp.text(), /secret/)
  })

  await t.test('behind a proxy of TRUST_PROXY the trace of the client is continued, and its decision not to sample is respected', async (t) => {
    const traceId = 'c'.repeat(32)
    await chat(program, key, { traceparent: `00-${'d'.repeat(32)}-${'e'.repeat(16)}-00` })
    await chat(program, key, { traceparent: `00-${traceId}-${'e'.repeat(16)}-01`, tracestate: 'vendor=value' })
    const request = await otlp.span('POST /v1/chat/completions', (span) => span.traceId === traceId)
    t.match(request, { parent: 'e'.repeat(16), traceState: 'vendor=value', links: [] })
    t.notOk(otlp.spans.some((span) => span.traceId === 'd'.repeat(32)))
  })

  await t.test('a malformed traceparent and an enormous tracestate are ignored', async (t) => {
    const before = new Set(otlp.spans)
    const bad = ['', 'x', `00-${'0'.repeat(32)}-${'e'.repeat(16)}-01`, `ff-${'a'.repeat(32)}-${'e'.repeat(16)}-01`, `00-${'a'.repeat(32)}-${'e'.repeat(16)}-01-more`, `00-${'A'.repeat(32)}`, 'a'.repeat(8000)]
    for (const traceparent of bad) t.equal((await chat(program, key, { traceparent, tracestate: 'k=v' })).status, 200, traceparent.slice(0, 60))
    const own = 'b'.repeat(32)
    t.equal((await chat(program, key, { traceparent: `00-${own}-${'e'.repeat(16)}-01`, tracestate: `k=${'v'.repeat(8000)}` })).status, 200)
    const last = await otlp.span('POST /v1/chat/completions', (span) => span.traceId === own)
    t.equal(last.traceState, '')
    const others = otlp.spans.filter((span) => !before.has(span) && span.name === 'POST /v1/chat/completions' && span.traceId !== own)
    t.equal(others.length, bad.length)
    t.ok(others.every(({ parent, traceState }) => parent === '' && traceState === ''))
  })
})

t.test('sampling by the settings of OpenTelemetry', async (t) => {
  const otlp = await openOtlpReceiver(t)
  const program = await running(t, { ...otlp.env, OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: '0' })
  const key = await program.key('demo-coding-key')
  t.equal((await chat(program, key)).status, 200)
  const metrics = await eventually('the metrics of the request', async () => {
    const text = await (await fetch(`${program.opsUrl}/metrics`, { headers: { accept: 'application/openmetrics-text' } })).text()
    return /^tollgate_http_request_duration_seconds_count\{.*chat\/completions.*\} 1$/m.test(text) ? text : null
  })
  t.notMatch(metrics, ' # {', 'no exemplar leads to a trace that is not there')
  t.same(await program.stop(), { code: 0, signal: null })
  t.same(otlp.spans, [])
})

t.test('an endpoint that is away, silent or full neither delays nor fails a request, nor the stop', async (t) => {
  const full = await openOtlpReceiver(t, (request, response) => void request.resume().on('end', () => response.writeHead(503, { 'retry-after': '60' }).end()))
  // Accepts connections and says nothing.
  const silent = createServer((socket) => void socket.on('error', () => {}).resume())
  const endpoints = ['http://127.0.0.1:9', full.url, `http://127.0.0.1:${await listening(t, silent)}`]
  const exports = endpoints.map(async (endpoint, i) => {
    const folder = join(t.testdirName, String(i))
    await mkdir(folder, { recursive: true })
    const program = await demo({ folder, env: { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_BSP_SCHEDULE_DELAY: '10', OTEL_BSP_MAX_QUEUE_SIZE: '16', OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '8' } })
    t.teardown(() => program.kill())
    const key = await program.key('demo-coding-key')
    const answers = await Promise.all(Array.from({ length: 50 }, () => chat(program, key)))
    t.same(new Set(answers.map(({ status }) => status)), new Set([200]), endpoint)
    t.same(await program.stop(), { code: 0, signal: null })
  })
  await Promise.all(exports)
})

t.test('without an endpoint nothing of OpenTelemetry is loaded', async (t) => {
  // The library of the metrics loads the interface by itself.
  const folder = t.testdir({
    'forbid.mjs': "import { registerHooks } from 'node:module'\nregisterHooks({ resolve(specifier, context, next) {\n  if (specifier.startsWith('@opentelemetry/') && !context.parentURL?.includes('/node_modules/prom-client/')) throw new Error(`${specifier} is loaded`)\n  return next(specifier, context)\n} })\n",
  })
  const argv = (): [string, ...string[]] => [process.execPath, '--import', join(folder, 'forbid.mjs'), join(REPOSITORY, 'bin/tollgate.mjs')]
  const env = { RESOURCES_URL: `files:${join(REPOSITORY, 'plans')}` }
  const program = await start({ folder, env, namespace: 'demo', argv: argv() })
  t.teardown(() => program.kill())
  t.equal((await chat(program, await program.key('demo-coding-key'))).status, 200)
  await program.stop()
  const loaded = start({ folder, env: { ...env, OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' }, namespace: 'demo', argv: argv() })
  await t.rejects(loaded, { message: /@opentelemetry\/\S+ is loaded/ }, 'the proof can fail')
})

t.test('a wrong setting stops the start with a sentence', async (t) => {
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' }
  const wrong: [[Record<string, string>, RegExp], ...[Record<string, string>, RegExp][]] = [
    [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'localhost:4318' }, /OTEL_EXPORTER_OTLP_ENDPOINT was "localhost:4318"; it must be an http or https address/],
    [{ ...endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' }, /OTEL_EXPORTER_OTLP_PROTOCOL was "grpc"; it must be http\/protobuf/],
    [{ ...endpoint, OTEL_TRACES_SAMPLER: 'sometimes' }, /OTEL_TRACES_SAMPLER was "sometimes"/],
    [{ ...endpoint, OTEL_TRACES_SAMPLER_ARG: '2' }, /OTEL_TRACES_SAMPLER_ARG was "2"; it must be a number from 0 to 1/],
    [{ ...endpoint, OTEL_BSP_MAX_QUEUE_SIZE: '-1' }, /OTEL_BSP_MAX_QUEUE_SIZE was "-1"/],
  ]
  for (const [env, sentence] of wrong) t.throws(() => readTraceSettings(env), { message: sentence })
  const [[env, sentence]] = wrong
  await t.rejects(start({ folder: t.testdir(), env: { RESOURCES_URL: `files:${join(REPOSITORY, 'plans')}`, ...env } }), { message: sentence })
})

t.test('a real collector takes the traces, and passes on what the program sent', async (t) => {
  const otlp = await openOtlpReceiver(t)
  const collector = await ownCollector(t, otlp.url)
  if (collector === null) return
  const program = await running(t, { OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_BSP_SCHEDULE_DELAY: '50', OTEL_SERVICE_NAME: 'gateway-of-acme', OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=test' })
  t.equal((await chat(program, await program.key('demo-coding-key'))).status, 200)
  // It ends after the attempt, and may be in a later export.
  await otlp.span('POST /v1/chat/completions')
  const attempt = await otlp.span('upstream attempt')
  t.same(lineage(otlp, attempt), ['upstream attempt', 'POST /v1/chat/completions'])
  t.match(attempt.resource, { 'service.name': 'gateway-of-acme', 'deployment.environment.name': 'test', 'tollgate.role': 'all', 'telemetry.sdk.name': 'opentelemetry' })
  t.match(attempt.attributes, { 'gen_ai.operation.name': 'chat', 'tollgate.stream': false })
})
