/**
 * What the duties of a coding request cost without Tollgate's code, as a second baseline of `one-process.ts`: the pass-through, and in one handler the hash of the key, both JSON documents, a
 * commit of SQLite on a thread of its own that the answer waits for, the metrics, the line of the log and the headers. It guards nothing: no limits, timeouts, retries, refusals or cleaning.
 */
import { hash, randomUUID } from 'node:crypto'
import { openSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import pino from 'pino'
import { Counter, Histogram, Registry } from 'prom-client'
import { Pool, type Dispatcher } from 'undici'

const COMMITS = `
const { parentPort } = require('node:worker_threads')
const db = new (require('node:sqlite').DatabaseSync)(process.env.FLOOR_FILE)
db.exec('PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; CREATE TABLE plan (id TEXT PRIMARY KEY, record TEXT)')
const put = db.prepare('INSERT OR REPLACE INTO plan VALUES (?, ?)')
parentPort.on('message', (record) => { db.exec('BEGIN'); put.run('plan', record); db.exec('COMMIT'); parentPort.postMessage(0) })
`
const METRICS = 10

/** Starts it beside this program, for a model at `modelUrl`, with its log and its database at `folder`. */
export async function openFloor(modelUrl: string, folder: string, port: number): Promise<void> {
  const store = new Worker(COMMITS, { eval: true, env: { FLOOR_FILE: `${folder}/floor.db` } })
  const log = pino(pino.destination({ fd: openSync(`${folder}/floor.log`, 'w'), minLength: 8192, sync: false }))
  const registers = [new Registry()]
  const metrics = Array.from({ length: METRICS }, (_, n) =>
    n % 2 === 0
      ? new Counter({ name: `count_${n}`, help: 'x', labelNames: ['wire', 'outcome'], registers }).labels({ wire: 'chat', outcome: 'ok' })
      : new Histogram({ name: `time_${n}`, help: 'x', labelNames: ['wire', 'outcome'], registers }).labels({ wire: 'chat', outcome: 'ok' }),
  )
  const keys = new Map<string, number>()
  const pool = new Pool(modelUrl, { allowH2: false, pipelining: 1, keepAliveTimeout: 30_000, headersTimeout: 0, bodyTimeout: 0 })
  const app = fastify({ bodyLimit: 32 * 1024 * 1024, keepAliveTimeout: 72_000, forceCloseConnections: true })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))

  const open = new Map<string, { reserved: number }>()
  let waiting: (() => void)[] = []
  let isWriting = false
  let used = 0
  store.on('message', () => {
    isWriting = false
    if (waiting.length > 0) write()
  })
  function write(): void {
    isWriting = true
    const told = waiting
    waiting = []
    store.once('message', () => told.forEach((tell) => tell()))
    store.postMessage(JSON.stringify({ used, open: [...open] }))
  }
  function stored(tell: () => void): void {
    waiting.push(tell)
    if (!isWriting) write()
  }

  function answer(request: FastifyRequest<{ Body: Buffer }>, reply: FastifyReply): void {
    const since = performance.now()
    const { raw } = reply.hijack()
    const key = hash('sha256', request.headers.authorization ?? '')
    keys.set(key, (keys.get(key) ?? 0) + 1)
    const { messages, stream, ...rest } = JSON.parse(request.body.toString('utf8')) as Record<string, unknown>
    const id = randomUUID()
    open.set(id, { reserved: 1000 })
    let held = ''
    let isStored = false
    let isOver = false
    stored(() => {
      isStored = true
      flush()
    })
    const more = stream === true ? { stream, stream_options: { include_usage: true } } : {}
    const body = JSON.stringify({ ...rest, model: 'bench-model', max_completion_tokens: 1000, ...more, messages })
    const parts: Buffer[] = []
    let flow: Dispatcher.DispatchController | null = null
    raw.on('drain', () => flow?.resume())
    raw.once('close', () => {
      open.delete(id)
      used += 600
      stored(() => {})
      for (const metric of metrics) {
        if ('inc' in metric) metric.inc(1)
        else metric.observe((performance.now() - since) / 1000)
      }
      const durationMs = performance.now() - since
      log.info({ reqId: id, tenant: 'tenant', plan: 'plan', keyId: key, route: request.url, status: raw.statusCode, input: 500, output: 100, durationMs }, 'request')
    })
    function flush(): void {
      if (!isStored || (held === '' && !isOver)) return
      if (!raw.headersSent) {
        const type = stream === true ? 'text/event-stream; charset=utf-8' : 'application/json; charset=utf-8'
        const headers: Record<string, string | number> = { 'content-type': type, 'x-request-id': id }
        for (let n = 0; n < 9; n++) headers[`x-ratelimit-window-${n}`] = String(used)
        if (stream !== true) headers['content-length'] = Buffer.byteLength(held)
        raw.writeHead(200, headers)
      }
      if (isOver) raw.end(held, 'latin1')
      else if (!raw.write(held, 'latin1')) flow?.pause()
      held = ''
    }
    pool.dispatch(
      { method: 'POST', path: request.url, headers: ['content-type', 'application/json', 'accept-encoding', 'identity'], body },
      {
        onRequestStart(started) {
          flow = started
        },
        onResponseStart() {},
        onResponseData(_controller, chunk) {
          if (stream !== true) return void parts.push(chunk)
          held += chunk.toString('latin1').replaceAll('chatcmpl-bench', id)
          flush()
        },
        onResponseEnd() {
          isOver = true
          if (stream !== true) {
            const value = JSON.parse((parts.length === 1 && parts[0] ? parts[0] : Buffer.concat(parts)).toString('utf8')) as object
            held = JSON.stringify({ ...value, id, model: 'svc-code' })
          }
          flush()
        },
        onResponseError() {
          raw.destroy()
        },
      },
    )
  }
  for (const url of ['/v1/chat/completions', '/v1/responses']) app.post(url, answer)
  await app.listen({ host: '127.0.0.1', port })
}
