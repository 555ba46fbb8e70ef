/** Baseline of the benchmarks, a separate process: Fastify and undici's `dispatch` over one Pool, which forward a request and stream its answer back. */
import fastify, { type FastifyReply, type FastifyRequest } from 'fastify'
import { Pool, type Dispatcher } from 'undici'

const pool = new Pool(process.env['MODEL_URL'] ?? '', { allowH2: false, pipelining: 1, keepAliveTimeout: 30_000, headersTimeout: 0, bodyTimeout: 0 })
const app = fastify({ bodyLimit: 32 * 1024 * 1024, keepAliveTimeout: 72_000, forceCloseConnections: true })

app.removeAllContentTypeParsers()
app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body))
app.get('/', async () => 'ok')
for (const url of ['/v1/chat/completions', '/v1/responses']) app.post<{ Body: Buffer }>(url, forward)

function forward(request: FastifyRequest<{ Body: Buffer }>, reply: FastifyReply): void {
  const { raw } = reply.hijack()
  let flow: Dispatcher.DispatchController | null = null
  let ended = false
  raw.on('drain', () => flow?.resume())
  raw.once('close', () => {
    if (!ended) flow?.abort(new Error('the client left'))
  })
  pool.dispatch(
    { method: 'POST', path: request.url, headers: { 'content-type': 'application/json', 'accept-encoding': 'identity', 'content-length': String(request.body.length) }, body: request.body },
    {
      onRequestStart(started) {
        flow = started
      },
      onResponseStart(_controller, status, headers) {
        delete headers['connection']
        delete headers['keep-alive']
        delete headers['transfer-encoding']
        raw.writeHead(status, headers)
      },
      onResponseData(_controller, chunk) {
        if (!raw.write(chunk)) flow?.pause()
      },
      onResponseEnd() {
        ended = true
        raw.end()
      },
      onResponseError() {
        ended = true
        raw.destroy()
      },
    },
  )
}

await app.listen({ host: '127.0.0.1', port: Number(process.env['PORT']) })
process.once('SIGTERM', () => void app.close().then(() => pool.destroy()))
