import { createServer, type Socket } from 'node:net'
import { PassThrough, Writable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import { type Ask, openEgress, type Reply } from '../../src/egress/egress.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { listening } from '../fakes/listening.ts'

const egress = openEgress({ allow: ['127.0.0.1/32'], clock: () => performance.now(), lookup: async () => ['127.0.0.1'] })
const post = { method: 'POST', body: '{"a":1}', deadlineMs: 60_000, maxBytes: 20_000, over: 'cut', redirects: 0 } as const satisfies Omit<Ask, 'url'>
const get = { method: 'GET', deadlineMs: 60_000, maxBytes: 20_000, over: 'fail', redirects: 3 } as const satisfies Omit<Ask, 'url'>

function bodyOf(reply: Reply): Buffer {
  if (reply.outcome !== 'answered') throw new Error(`${reply.outcome}: ${reply.reason}`)
  return Buffer.from(reply.body)
}

async function receiverOf(t: Test) {
  return openReceiver(t)
}

/** A raw TCP server. */
async function rawServer(t: Test, speak: (socket: Socket) => void): Promise<number> {
  return listening(t, createServer((socket) => speak(socket.on('error', () => {}))))
}

/** Answers a request with `start`, and then repeats `more` until the peer disconnects. */
function drip(socket: Socket, start: string, more: string): void {
  socket.once('data', () => {
    socket.write(start)
    const timer = setInterval(() => socket.write(more), 5)
    socket.once('close', () => clearInterval(timer))
  })
}

function endless(response: ServerResponse): void {
  const block = Buffer.alloc(16_384, 'x')
  const more = (): void => {
    while (!response.destroyed && response.write(block));
  }
  response.on('drain', more)
  more()
}

t.test('the deadline covers each stage: lookup, connect, TLS, head and body', async (t) => {
  const silent = await rawServer(t, (socket) => void socket.resume())
  const slowly = (start: string, more: string) => rawServer(t, (socket) => drip(socket, start, more))
  const slowHead = await slowly('HTTP/1.1 200 OK\r\nX-Slow: ', 'x')
  const informs = await slowly('', 'HTTP/1.1 103 Early Hints\r\n\r\n')
  const slowBody = await slowly('HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n', 'x')
  const slowChunks = await slowly('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n', '1\r\nx\r\n')
  const cases: [name: string, url: string][] = [
    ['no head', `http://127.0.0.1:${silent}/`],
    ['no TLS handshake', `https://127.0.0.1:${silent}/`],
    ['a head byte by byte', `http://127.0.0.1:${slowHead}/`],
    ['informational answers without end', `http://127.0.0.1:${informs}/`],
    ['a body byte by byte', `http://127.0.0.1:${slowBody}/`],
    ['chunks byte by byte', `http://127.0.0.1:${slowChunks}/`],
  ]
  for (const [name, url] of cases) {
    t.match(await egress.request({ url, ...post, deadlineMs: 100 }), { outcome: 'failed', reason: 'timeout' }, name)
    const sink = new PassThrough()
    t.match(await egress.request({ url, ...get, deadlineMs: 100, sink: () => sink }), { outcome: 'failed', reason: 'timeout' }, `${name}, into a sink`)
  }
  const stuck = openEgress({ allow: [], clock: () => 0, lookup: () => new Promise(() => {}) })
  t.match(await stuck.request({ url: 'http://a.example/', ...post, deadlineMs: 20 }), { outcome: 'failed', reason: 'timeout' }, 'the resolver does not answer')
})

t.test('one deadline covers all redirects together', async (t) => {
  const receiver = await receiverOf(t)
  receiver.always(() => (_request, response) => void setTimeout(() => response.writeHead(302, { location: '/again' }).end(), 20))
  t.match(await egress.request({ url: `${receiver.url}/`, ...get, redirects: 1_000_000, deadlineMs: 200 }), { outcome: 'failed', reason: 'timeout' })
})

t.test('the caller can abort a request at any stage', async (t) => {
  const receiver = await receiverOf(t)
  receiver.always(() => 'never')
  const stop = new AbortController()
  const asked = egress.request({ url: `${receiver.url}/`, ...post, signal: stop.signal })
  await receiver.arrived(1)
  stop.abort()
  t.match(await asked, { outcome: 'failed', reason: 'canceled' })
  t.match(await egress.request({ url: `${receiver.url}/`, ...post, signal: AbortSignal.abort() }), { outcome: 'failed', reason: 'canceled' })
  receiver.always(() => (_request, response) => void response.writeHead(200).write('a'))
  const later = new AbortController()
  const sink = (): PassThrough => (later.abort(), new PassThrough())
  const cut = await egress.request({ url: `${receiver.url}/`, ...get, sink, signal: later.signal })
  t.match(cut, { outcome: 'failed', reason: 'canceled', status: 200 }, 'the status of a cut answer is kept')
  await receiver.idle()
  t.equal(receiver.received.length, 2)
})

t.test('an answer whose body breaks off fails, with its status', async (t) => {
  const short = await rawServer(t, (socket) => void socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx')))
  t.match(await egress.request({ url: `http://127.0.0.1:${short}/`, ...post }), { outcome: 'failed', reason: 'reset', status: 200 })
})

t.test('an endless answer to a webhook is truncated and counts as an answer', async (t) => {
  const receiver = await receiverOf(t)
  receiver.always(() => (_request, response) => endless(response))
  t.equal(bodyOf(await egress.request({ url: `${receiver.url}/`, ...post })).length, 20_000)
  await receiver.idle()
})

t.test('a download above its size fails as too_large, announced or not, in memory or in a sink', async (t) => {
  const receiver = await receiverOf(t)
  receiver.always(() => (_request, response) => endless(response))
  const sink = new PassThrough().resume()
  t.match(await egress.request({ url: `${receiver.url}/`, ...get }), { outcome: 'failed', reason: 'too_large', status: 200 })
  t.match(await egress.request({ url: `${receiver.url}/`, ...get, sink: () => sink }), { outcome: 'failed', reason: 'too_large', status: 200 })
  t.ok(sink.destroyed && !sink.writableFinished, 'the sink is not finished')
  receiver.always(() => (_request, response) => void response.writeHead(200, { 'content-length': '20001' }).flushHeaders())
  t.match(await egress.request({ url: `${receiver.url}/`, ...get }), { outcome: 'failed', reason: 'too_large' }, 'announced')
  receiver.always(() => ({ status: 200, body: Buffer.alloc(20_000) }))
  t.equal(bodyOf(await egress.request({ url: `${receiver.url}/`, ...get })).length, 20_000, 'exactly the limit')
  await receiver.idle()
})

t.test('only a 2xx body is streamed into the sink', async (t) => {
  const receiver = await receiverOf(t)
  const media = Buffer.alloc(3_000_000, 'media')
  receiver.next({ status: 200, headers: { 'content-type': 'video/mp4' }, body: media })
  const sink = new PassThrough()
  const [reply, bytes] = await Promise.all([
    egress.request({ url: `${receiver.url}/`, ...get, maxBytes: 3_000_000, sink: ({ headers }) => (t.equal(headers['content-type'], 'video/mp4'), sink) }),
    buffer(sink),
  ])
  t.equal(bodyOf(reply).length, 0)
  t.ok(bytes.equals(media))
  receiver.next((_request, response) => {
    response.statusCode = 404
    endless(response)
  })
  const unasked = (): never => t.fail('the sink was opened') as never
  t.match(await egress.request({ url: `${receiver.url}/`, ...get, sink: unasked }), { outcome: 'answered', status: 404 })
  await receiver.idle()
})

t.test('a failure of the sink is thrown to the caller', async (t) => {
  const receiver = await receiverOf(t)
  receiver.always(() => ({ status: 200, body: Buffer.alloc(10_000) }))
  const full = new Writable({ write: (_chunk, _encoding, done) => done(new Error('disk full')) })
  await t.rejects(egress.request({ url: `${receiver.url}/`, ...get, sink: () => full }), { message: 'disk full' })
  await receiver.idle()
})

t.test('nothing is decompressed', async (t) => {
  const receiver = await receiverOf(t)
  const bomb = gzipSync(Buffer.alloc(10_000_000))
  receiver.next({ status: 200, headers: { 'content-encoding': 'gzip' }, body: bomb })
  t.ok(bodyOf(await egress.request({ url: `${receiver.url}/`, ...get })).equals(bomb))
  t.equal(receiver.received[0]?.headers['accept-encoding'], 'identity')
})

t.test('a connection that breaks off is a failure with a reason', async (t) => {
  const receiver = await receiverOf(t)
  receiver.next('reset')
  t.match(await egress.request({ url: `${receiver.url}/`, ...post }), { outcome: 'failed', reason: 'reset', status: null })
  const answers: [string, string, string, number | null][] = [
    ['hangs up at once', '', 'reset', null],
    ['hangs up within the head', 'HTTP/1.1 200 OK\r\nX', 'reset', null],
    ['hangs up within the body', 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc', 'reset', 200],
    ['hangs up within a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc', 'reset', 200],
    ['speaks another protocol', 'SSH-2.0-OpenSSH_9.9\r\n', 'protocol', null],
    ['lies about its length twice', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab', 'protocol', null],
    ['sends a chunk of no size', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n', 'protocol', 200],
    ['floods the head', `HTTP/1.1 200 OK\r\n${'X-Flood: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n'.repeat(10_000)}`, 'protocol', null],
    ['upgrades to another protocol', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n', 'reset', null],
  ]
  for (const [name, text, reason, status] of answers) {
    const port = await rawServer(t, (socket) => void socket.once('data', () => socket.end(text)))
    t.match(await egress.request({ url: `http://127.0.0.1:${port}/`, ...post }), { outcome: 'failed', reason, status }, name)
  }
  const gone = await openReceiver(t)
  await gone.close()
  t.match(await egress.request({ url: `${gone.url}/`, ...post }), { outcome: 'failed', reason: 'connect', status: null })
})

t.test('interim answers that nobody asked for are skipped, however they arrive', async (t) => {
  const interim = 'HTTP/1.1 100 Continue\r\n\r\n'
  const answer = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
  const before = [interim, interim.repeat(3), 'HTTP/1.1 100 Continue\r\nX-Any: thing\r\n\r\n', `${interim}HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n`]
  for (const text of before.map((one) => one + answer)) {
    const atOnce = await rawServer(t, (socket) => void socket.once('data', () => socket.end(text)))
    const inBytes = await rawServer(t, (socket) => {
      socket.setNoDelay()
      socket.once('data', async () => {
        for (const byte of text) await new Promise((sent) => socket.write(byte, sent))
        socket.end()
      })
    })
    for (const port of [atOnce, inBytes]) {
      const reply = await egress.request({ url: `http://127.0.0.1:${port}/`, ...post })
      t.match(reply, { outcome: 'answered', status: 200 }, JSON.stringify(text))
      t.equal(bodyOf(reply).toString(), 'ok')
    }
  }
  for (const text of [interim, 'HTTP/1.1 100 Cont', `HTTP/1.1 100 Continue\r\nX: ${'y'.repeat(100_000)}`]) {
    const port = await rawServer(t, (socket) => void socket.once('data', () => socket.end(text)))
    t.match(await egress.request({ url: `http://127.0.0.1:${port}/`, ...post }), { outcome: 'failed', status: null }, 'an answer never came')
  }
})

t.test('bytes after the answer are not read', async (t) => {
  const answer = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
  const after = await rawServer(t, (socket) => void socket.once('data', () => socket.end(`${answer}HTTP/1.1 500 No\r\n\r\n`)))
  t.equal(bodyOf(await egress.request({ url: `http://127.0.0.1:${after}/`, ...post })).toString(), 'ok')
})

t.test('every request uses a new connection, HTTP/1.1 with Connection: close, and no cookie', async (t) => {
  const receiver = await receiverOf(t)
  const ports: (number | undefined)[] = []
  receiver.always(() => (request, response) => {
    ports.push(request.socket.remotePort)
    response.writeHead(200, { 'set-cookie': 'a=b' }).end('ok')
  })
  for (let i = 0; i < 5; i++) t.match(await egress.request({ url: `${receiver.url}/a?b=c#d`, ...post }), { outcome: 'answered' })
  t.equal(new Set(ports).size, 5)
  for (const { headers, path, rawBody } of receiver.received) {
    t.match(headers, { connection: 'close', 'content-length': '7', cookie: undefined, host: `127.0.0.1:${receiver.port}` })
    t.equal(path, '/a?b=c')
    t.equal(rawBody.toString(), '{"a":1}')
  }
  await receiver.idle()
  t.equal(receiver.connections(), 0, 'no socket is left open')
})
