/** Connections to upstreams over real sockets: which are used again, what ends them, back-pressure, and TLS. */
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { createServer as createTlsServer, type SecureVersion, type TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { openConnectionPool, type ConnectionPool, type Connections } from '../../src/upstream/http/connection-pool.ts'
import type { Connection } from '../../src/upstream/http/connection.ts'
import { eventually } from '../flows/eventually.ts'
import { SELF_SIGNED } from './self-signed.ts'
import { listening } from '../fakes/listening.ts'
import { freePort } from '../servers/process.ts'

type Answered = { status: number; body: string; error: Error | null; onIdleConnection: boolean }
/** `served`: its requests so far, this one included. */
type Script = (socket: Socket, served: number, request: string) => void

const HEAD = 'POST /v1/x HTTP/1.1\r\nhost: upstream\r\n'
const answerOf = (body: string, fields = '') => `HTTP/1.1 200 OK\r\n${fields}content-length: ${body.length}\r\n\r\n${body}`
const answering: Script = (socket) => void socket.write(answerOf('a'))

/** A server that runs the script once a request is whole, and a pool that leads to it. `tls`: the latest version that the server knows. */
async function serve(t: Test, script: Script, { tls = null as SecureVersion | null, host = '127.0.0.1' } = {}) {
  const sockets: Socket[] = []
  const listener = (socket: Socket) => {
    sockets.push(socket)
    let request = ''
    let served = 0
    socket.on('error', () => {})
    socket.on('data', (part) => {
      request += part.toString('latin1')
      const [, length] = /content-length: (\d+)\r\n\r\n/.exec(request) ?? []
      if (length === undefined || request.length < request.indexOf('\r\n\r\n') + 4 + Number(length)) return
      const whole = request
      request = ''
      script(socket, ++served, whole)
    })
  }
  const port = await listening(t, tls ? createTlsServer({ ...SELF_SIGNED, maxVersion: tls }, listener) : createServer(listener), host)
  const pool = openConnectionPool(new URL(`${tls ? 'https' : 'http'}://${host}:${port}`), 5_000)
  t.teardown(() => pool.destroy())
  return { pool, sockets, port }
}

/** Sends a request. `data` gets the connection and each part of the body. */
function send(pool: ConnectionPool, body: string | Buffer[] = '{}', { connections = 'pool' as Connections, data = (_connection: Connection | null, _part: string) => {} } = {}) {
  const answered: Answered = { status: 0, body: '', error: null, onIdleConnection: false }
  const { promise, resolve } = Promise.withResolvers<Answered>()
  const connection = pool.send(HEAD, body, {
    responseBegun: ({ status }) => void (answered.status = status),
    responseData(bytes) {
      answered.body += bytes.toString('latin1')
      data(connection, bytes.toString('latin1'))
    },
    responseEnded: () => resolve(answered),
    responseFailed: (error, onIdleConnection) => resolve({ ...answered, error, onIdleConnection }),
  }, connections)
  return { connection, answered: promise }
}

t.test('one connection serves one request after another; requests at once have one each, and one that is not pooled its own', async (t) => {
  const requests: string[] = []
  const { pool, sockets } = await serve(t, (socket, _served, request) => {
    requests.push(request)
    socket.write(answerOf('a'))
  })
  for (let n = 0; n < 3; n++) t.match(await send(pool).answered, { status: 200, body: 'a', error: null })
  t.equal(sockets.length, 1)
  t.equal(requests[2], `${HEAD}connection: keep-alive\r\ncontent-length: 2\r\n\r\n{}`)
  await Promise.all([send(pool).answered, send(pool).answered])
  t.equal(sockets.length, 2)
  await send(pool, 'é😀', { connections: 'unpooled' }).answered
  t.equal(requests.at(-1), `${HEAD}connection: close\r\ncontent-length: 6\r\n\r\n${Buffer.from('é😀').toString('latin1')}`)
  await once(sockets[2] as Socket, 'close')
  t.equal(sockets.length, 3)
})

const ENDING: [string, string][] = [
  ['Connection: close', answerOf('a', 'connection: close\r\n')],
  ['a time that is over', answerOf('a', 'keep-alive: timeout=1\r\n')],
  ['HTTP/1.0', answerOf('a').replace('1.1', '1.0')],
  ['a second response', answerOf('a') + answerOf('b')],
  ['a byte too many', `${answerOf('a')}\n`],
]
for (const [name, answer] of ENDING) t.test(`a connection is not used again after ${name}`, async (t) => {
  const { pool, sockets } = await serve(t, (socket) => void socket.write(answer))
  for (let n = 1; n <= 2; n++) {
    t.match(await send(pool).answered, { status: 200, body: 'a', error: null })
    t.equal(sockets.length, n)
  }
})

t.test('what arrives from a server on an idle connection ends it, and does not answer the next request', async (t) => {
  const { pool, sockets } = await serve(t, (socket, served, request) => {
    socket.write(answerOf(request.endsWith('mine') ? 'mine' : 'other'))
    // In a packet of its own, while the next request is on its way to the pool.
    if (served === 1) setImmediate(() => socket.write(answerOf('stale')))
  })
  for (let n = 0; n < 20; n++) {
    t.equal((await send(pool).answered).body, 'other')
    const { body, error, onIdleConnection } = await send(pool, 'mine').answered
    t.ok(body === 'mine' || (error !== null && onIdleConnection), body)
    for (const socket of sockets.splice(0)) socket.destroy()
    await eventually('the connections to be closed', async () => ((await send(pool, 'mine').answered).error === null ? true : null))
  }
})

t.test('what arrives before a request is sent does not answer it, even if the request is paused by then', async (t) => {
  const asked = Promise.withResolvers<void>()
  const { pool, sockets } = await serve(t, (socket, served, request) => {
    if (served === 2) asked.resolve()
    socket.write(answerOf(request.slice(-4)))
  })
  t.equal((await send(pool, 'mine').answered).body, 'mine')
  // Two turns later it is free.
  for (let n = 0; n < 3; n++) await nextTurn()
  const server = sockets[0] as Socket
  const { connection, answered } = send(pool, 'next')
  connection?.pause()
  server.write(answerOf('stale'))
  await Promise.race([once(server, 'close'), asked.promise])
  connection?.resume()
  t.match(await answered, { body: '', error: { message: /nobody asked for/ }, onIdleConnection: true })
  t.equal((await send(pool, 'last').answered).body, 'last')
})

t.test('a connection that the server closes as the next request is sent fails it as one that had been idle; a fresh one does not', async (t) => {
  const { pool } = await serve(t, (socket, served) => void (served === 1 ? socket.write(answerOf('a')) : socket.destroy()))
  t.match(await send(pool).answered, { error: null })
  t.match(await send(pool).answered, { error: Error, onIdleConnection: true, status: 0 })
  const { pool: other } = await serve(t, (socket) => void socket.destroy())
  t.match(await send(other).answered, { error: Error, onIdleConnection: false })
  const { pool: third } = await serve(t, (socket, served) => void (served === 1 ? socket.write(answerOf('a')) : socket.end('HTTP/1.1 100 Continue\r\n\r\n')))
  t.match(await send(third).answered, { error: null })
  t.match(await send(third).answered, { error: Error, onIdleConnection: false })
})

t.test('a response before the end of the request is read, and its connection is not used again', async (t) => {
  const { sockets, pool } = await serve(t, answering)
  const early = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', () => {
      socket.pause()
      socket.write(answerOf('no').replace('200', '413'))
    })
  })
  const earlyPool = openConnectionPool(new URL(`http://127.0.0.1:${await listening(t, early)}`), 5_000)
  t.teardown(() => earlyPool.destroy())
  const pieces = Array.from({ length: 400 }, () => Buffer.alloc(64 * 1024, 'x'))
  t.match(await send(earlyPool, pieces).answered, { status: 413, body: 'no', error: null })
  await earlyPool.drain()
  t.match(await send(pool, [Buffer.from('ab'), Buffer.from('cd')]).answered, { status: 200 })
  t.equal(sockets.length, 1)
})

t.test('the pieces of a large body are given to the socket as it takes them, so that what is sent is not kept', async (t) => {
  let received = 0
  let resume = () => {}
  const server = createServer((socket) => {
    socket.once('data', (part) => {
      received += part.length
      socket.pause()
      resume = () => socket.on('data', (more) => void ((received += more.length) >= 400 * 64 * 1024 && socket.write(answerOf('a')))).resume()
    })
  })
  const pool = openConnectionPool(new URL(`http://127.0.0.1:${await listening(t, server)}`), 5_000)
  t.teardown(() => pool.destroy())
  const pieces = Array.from({ length: 400 }, () => Buffer.alloc(64 * 1024, 'x'))
  const { answered } = send(pool, pieces)
  await eventually('the server to receive something', async () => (received > 0 ? true : null))
  t.ok(pieces.length > 0 && pieces.length < 400, `${pieces.length} of 400 pieces are left`)
  resume()
  t.match(await answered, { status: 200, body: 'a' })
  t.equal(pieces.length, 0)
})

for (const tls of [false, true]) t.test(`a paused response is not read on, and comes whole after it is resumed${tls ? ', over TLS' : ''}`, async (t) => {
  const total = 32 * 1024 * 1024
  let written = 0
  const script: Script = (socket) => {
    socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${total}\r\n\r\n`)
    const more = () => {
      while (written < total) {
        written += 64 * 1024
        if (!socket.write(Buffer.alloc(64 * 1024, 'x'))) return void socket.once('drain', more)
      }
    }
    more()
  }
  const { pool } = tls ? await trusting(t, script) : await serve(t, script)
  let got = 0
  let first = 0
  const { connection, answered } = send(pool, '{}', {
    data(one, part) {
      got += part.length
      if (first > 0) return
      first = got
      one?.pause()
    },
  })
  let last = -1
  await eventually('the server to stop', async () => {
    const isStill = written > 0 && written === last
    last = written
    return isStill ? true : null
  })
  t.equal(got, first, 'nothing more was handed on')
  t.ok(written < total, 'the server could not write everything')
  connection?.resume()
  t.equal((await answered).body.length, total)
})

for (const tls of [false, true]) t.test(`a paused response whose connection the server closes is whole after it is resumed${tls ? ', over TLS' : ''}`, async (t) => {
  const script: Script = (socket) => void socket.end(`HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${'1\r\na\r\n'.repeat(9)}0\r\n\r\n`)
  const { pool, sockets } = tls ? await trusting(t, script) : await serve(t, script)
  const { connection, answered } = send(pool, '{}', { data: (one) => one?.pause() })
  await eventually('the connection', async () => (sockets.length === 1 ? true : null))
  const resuming = setInterval(() => connection?.resume(), 1)
  t.match(await answered, { status: 200, body: 'a'.repeat(9), error: null })
  clearInterval(resuming)
})

/** A pool that trusts the certificate of the tests, as an operator's `NODE_EXTRA_CA_CERTS` does. */
async function trusting(t: Test, script: Script, { tls = 'TLSv1.3' as SecureVersion, host = '127.0.0.1' } = {}) {
  const { getCACertificates, setDefaultCACertificates } = await import('node:tls')
  const before = getCACertificates('default')
  setDefaultCACertificates([...before, SELF_SIGNED.cert])
  t.teardown(() => setDefaultCACertificates(before))
  return serve(t, script, { tls, host })
}

t.test('over TLS a server is asked only once its certificate was checked, and its connection is used again', async (t) => {
  const requests: string[] = []
  const script: Script = (socket, _served, request) => {
    requests.push(request)
    socket.write(answerOf('a'))
  }
  const untrusted = await serve(t, script, { tls: 'TLSv1.3' })
  for (let n = 0; n < 2; n++) t.match(await send(untrusted.pool).answered, { error: { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' }, onIdleConnection: false })
  t.same(requests, [])
  const { pool, sockets, port } = await trusting(t, script)
  for (let n = 0; n < 3; n++) t.match(await send(pool).answered, { status: 200, body: 'a' })
  t.equal(sockets.length, 1)
  const byName = openConnectionPool(new URL(`https://localhost:${port}`), 5_000)
  t.teardown(() => byName.destroy())
  t.match(await send(byName).answered, { status: 200, body: 'a' }, 'the name is in the certificate')
})

for (const version of ['TLSv1.2', 'TLSv1.3'] as const) t.test(`a new connection resumes the session of ${version} of an earlier one whose certificate was checked, and no other`, async (t) => {
  const isReused: boolean[] = []
  const script: Script = (socket) => {
    isReused.push((socket as TLSSocket).isSessionReused())
    socket.write(answerOf('a', 'connection: close\r\n'))
  }
  const { pool } = await trusting(t, script, { tls: version })
  for (let n = 0; n < 3; n++) t.match(await send(pool).answered, { status: 200, body: 'a' })
  t.same(isReused, [false, true, true])
  // Its name is not in the certificate: were the session kept, the second connection would resume it, and not check the name.
  const misnamed = await trusting(t, script, { tls: version, host: '127.0.0.2' })
  for (let n = 0; n < 3; n++) t.match(await send(misnamed.pool).answered, { error: { code: 'ERR_TLS_CERT_ALTNAME_INVALID' } })
  t.equal(isReused.length, 3)
})

t.test('what cannot be connected fails by its cause', async (t) => {
  const port = await freePort()
  const refused = openConnectionPool(new URL(`http://127.0.0.1:${port}`), 5_000)
  t.match(await send(refused).answered, { error: { code: 'ECONNREFUSED' }, onIdleConnection: false })
  // It accepts connections, and never shakes hands.
  const silent = await listening(t, createServer((socket) => void socket.on('error', () => {})))
  const slow = openConnectionPool(new URL(`https://127.0.0.1:${silent}`), 50)
  t.match(await send(slow).answered, { error: { message: 'connect timeout after 50 ms' } })
  // Not the default port.
  const zero = openConnectionPool(new URL('http://127.0.0.1:0'), 5_000)
  t.match(await send(zero).answered, { error: { message: /ECONNREFUSED 127\.0\.0\.1$/ } })
  await Promise.all([refused.destroy(), slow.destroy(), zero.destroy()])
})

t.test('a pool that is drained finishes what is in flight and keeps no connection; one that is destroyed ends it and takes no further requests', async (t) => {
  const asked = Promise.withResolvers<Socket>()
  const { pool, sockets } = await serve(t, (socket) => asked.resolve(socket))
  const first = send(pool)
  const socket = await asked.promise
  const drained = pool.drain()
  const refused = { error: { message: /not in use/ }, onIdleConnection: false }
  const again = send(pool)
  await eventually('its own connection', async () => (sockets.length === 2 ? true : null))
  sockets[1]?.write(answerOf('b'))
  t.match(await again.answered, { status: 200, body: 'b' }, 'a call that has begun may send its request again')
  socket.write(answerOf('a'))
  t.match(await first.answered, { status: 200, body: 'a' })
  await drained
  const { pool: other, sockets: others } = await serve(t, () => {})
  const second = send(other)
  await eventually('the connection', async () => (others.length === 1 ? true : null))
  await other.destroy()
  t.match(await second.answered, refused)
  for (const connections of ['pool', 'unpooled'] as const) t.match(await send(other, '{}', { connections }).answered, refused)
})
