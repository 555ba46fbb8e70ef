/**
 * Hand-written minimal gateway, the lower bound of the cost of a JSON request: a pass-through whose one handler hashes the key, reserves and settles both windows in
 * SQLite, parses and rebuilds request and answer, and writes window headers, metrics and a log line. It validates nothing and handles no errors.
 */
import { createHash, randomUUID } from 'node:crypto'
import { DatabaseSync } from 'node:sqlite'
import fastify from 'fastify'
import { pino } from 'pino'
import { Counter, Gauge, Histogram } from 'prom-client'
import { Pool } from 'undici'

type Window = { used: number; endsAt: number }
type Kept = { version: number; session: Window; weekly: Window; tat: number; reservations: Record<string, { tokens: number; at: number }> }

const OUTPUT_TOKENS = 256
const pool = new Pool(process.env['MODEL_URL'] ?? '', { allowH2: false, pipelining: 1, keepAliveTimeout: 30_000, headersTimeout: 0, bodyTimeout: 0 })
const app = fastify({ bodyLimit: 32 * 1024 * 1024, keepAliveTimeout: 72_000, forceCloseConnections: true })
const log = pino()
const labels = ['route', 'code']
const requests = new Counter({ name: 'requests_total', help: 'Requests', labelNames: labels }).labels('chat', '200')
const durations = new Histogram({ name: 'duration_seconds', help: 'Duration', labelNames: labels }).labels('chat', '200')
const overheads = new Histogram({ name: 'overhead_seconds', help: 'Until the request to the model', labelNames: ['wire'] }).labels('chat')
const upstreams = new Histogram({ name: 'upstream_seconds', help: 'The model', labelNames: ['name'] }).labels('model')
const tokens = new Counter({ name: 'tokens_total', help: 'Tokens', labelNames: ['kind'] })
const [inputs, outputs] = [tokens.labels('input'), tokens.labels('output')]
const reserved = new Gauge({ name: 'reserved_tokens', help: 'Reserved' })

const db = new DatabaseSync('minimal-handler.db')
db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; CREATE TABLE IF NOT EXISTS records (id TEXT PRIMARY KEY, version INTEGER, record TEXT) STRICT, WITHOUT ROWID')
db.exec(`INSERT OR REPLACE INTO records VALUES ('plan', 0, '{}')`)
const update = db.prepare(`UPDATE records SET version = ?, record = ? WHERE id = 'plan' AND version = ?`)

const key = { value: '' }
let record: Kept = { version: 0, session: { used: 0, endsAt: Date.now() + 18_000_000 }, weekly: { used: 0, endsAt: Date.now() + 604_800_000 }, tat: 0, reservations: {} }
let waiting: { change: (record: Kept) => void; done: () => void }[] = []

/** Group commit: changes queued in one iteration of the event loop share a write. */
function changed(change: (record: Kept) => void): Promise<void> {
  return new Promise((done) => {
    if (waiting.length === 0) setImmediate(flush)
    waiting.push({ change, done })
  })
}

function flush(): void {
  const batch = waiting
  waiting = []
  const next = { ...record, version: record.version + 1, session: { ...record.session }, weekly: { ...record.weekly }, reservations: { ...record.reservations } }
  for (const { change } of batch) change(next)
  update.run(next.version, JSON.stringify(next), record.version)
  record = next
  for (const { done } of batch) done()
}

function ask(body: string): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    const bytes = Buffer.from(body)
    pool.dispatch(
      { method: 'POST', path: '/v1/chat/completions', headers: { 'content-type': 'application/json', 'accept-encoding': 'identity', 'content-length': String(bytes.length) }, body: bytes },
      {
        onRequestStart() {},
        onResponseStart() {},
        onResponseData: (_controller, chunk) => void chunks.push(chunk),
        onResponseEnd: () => resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks)),
        onResponseError: (_controller, error) => reject(error),
      },
    )
  })
}

app.removeAllContentTypeParsers()
app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) => done(null, JSON.parse(body.toString())))
app.get('/', async () => 'ok')
app.post<{ Body: { max_tokens: number; messages: { role: string; content: string }[] } }>('/v1/chat/completions', async (request, reply) => {
  const begunMs = performance.now()
  const hash = createHash('sha256').update(request.headers.authorization ?? '').digest('base64url')
  if (key.value !== '' && key.value !== hash) throw new Error('another key')
  key.value = hash
  const id = randomUUID()
  const { messages, max_tokens } = request.body
  const size = (max_tokens ?? OUTPUT_TOKENS) + Math.ceil(messages.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0) / 4)
  await changed((next) => {
    next.tat = Math.max(next.tat, Date.now()) + 1
    next.reservations[id] = { tokens: size, at: Date.now() }
  })
  reserved.inc(size)
  const askedMs = performance.now()
  overheads.observe((askedMs - begunMs) / 1000)
  const answer = JSON.parse((await ask(JSON.stringify({ model: 'bench-model', messages, max_tokens }))).toString())
  upstreams.observe((performance.now() - askedMs) / 1000)
  const usage = { prompt_tokens: answer.usage.prompt_tokens, completion_tokens: answer.usage.completion_tokens, total_tokens: answer.usage.total_tokens }
  const used = usage.total_tokens
  const percent = (window: Window): string => ((window.used / 1e9) * 100).toFixed(1)
  reply.raw.once('close', async () => {
    await changed((next) => {
      delete next.reservations[id]
      next.session.used += used
      next.weekly.used += used
    })
    reserved.dec(size)
    inputs.inc(usage.prompt_tokens)
    outputs.inc(usage.completion_tokens)
    requests.inc()
    const durationMs = Math.round(performance.now() - begunMs)
    durations.observe(durationMs / 1000)
    log.info({ requestId: id, tenant: 'tenant', keyId: hash, route: '/v1/chat/completions', method: 'POST', status: 200, ip: request.ip, durationMs, complete: true, tokens: usage, charged: used }, 'request')
  })
  reply.headers({
    'x-request-id': id,
    'content-type': 'application/json; charset=utf-8',
    'x-ratelimit-limit-tokens': '1000000000',
    'x-ratelimit-remaining-tokens': String(1e9 - record.session.used),
    'x-codex-primary-used-percent': percent(record.session),
    'x-codex-primary-reset-at': String(Math.ceil(record.session.endsAt / 1000)),
    'x-codex-secondary-used-percent': percent(record.weekly),
    'x-codex-secondary-reset-at': String(Math.ceil(record.weekly.endsAt / 1000)),
  })
  return reply.send(
    JSON.stringify({
      id: `chatcmpl-${id}`,
      object: 'chat.completion',
      created: Math.floor(Date.now() / 1000),
      model: 'svc-code',
      choices: answer.choices.map(({ index, message, finish_reason }: { index: number; message: { content: string }; finish_reason: string }) => ({
        index,
        message: { role: 'assistant', content: message.content },
        logprobs: null,
        finish_reason,
      })),
      usage,
    }),
  )
})

await app.listen({ host: '127.0.0.1', port: Number(process.env['PORT']) })
process.once('SIGTERM', () => void app.close().then(() => pool.destroy()))
