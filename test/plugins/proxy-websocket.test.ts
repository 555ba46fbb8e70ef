/** WebSocket through pass-through routes, with a real client. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { FastifyInstance } from 'fastify'
import t from 'tap'
import { WebSocket, WebSocketServer } from 'ws'
import { Unavailable } from '../../src/domain/errors.ts'
import { certify } from '../egress/certificate.ts'
import { openService } from '../fakes/service.ts'
import { eventually } from '../flows/eventually.ts'
import { openProxyProgram } from './proxy-program.ts'

const route = { product: 'Coding', tokensPerRequest: 10, prefix: '/live', websocket: true }
const connect = (port: number, key: string, path = '/live/x?y=1', headers = {}, protocols = ['chat']) => new WebSocket(`ws://127.0.0.1:${port}${path}`, protocols, { headers: { authorization: `Bearer ${key}`, cookie: 'a=1', 'x-kept': 'yes', ...headers } })

const heldBy = async ({ metrics }: FastifyInstance) => Number(/^tollgate_body_memory_bytes (\d+)/m.exec(await metrics.registry.metrics())?.[1])

/** The status of a refused handshake. */
async function refused(socket: WebSocket): Promise<number> {
  const [, response] = await once(socket, 'unexpected-response')
  return response.statusCode
}

t.test('messages pass in both directions, the connection is charged once, and its key stays here', async (t) => {
  const service = await openService(t, { socket: (socket) => socket.on('message', (data, binary) => socket.send(data, { binary })) })
  const { port, coding, usedTokens } = await openProxyProgram(t, [{ ...route, upstream: service.url, rewritePrefix: '/base' }])
  const socket = connect(port, coding, `/live/x?y=1&key=${coding}`, {}, [`bearer.${coding}`, 'chat'])
  await once(socket, 'open')
  for (const message of ['hello', Buffer.from([1, 2, 3]), 'x'.repeat(3_000_000)]) {
    socket.send(message)
    const [back] = await once(socket, 'message')
    t.ok(Buffer.from(message as string).equals(back as Buffer))
  }
  socket.close(4001, 'bye')
  await once(socket, 'close')
  t.equal(await usedTokens(), 10)
  t.equal(service.seen[0]?.url, '/base/x?y=1')
  t.match(service.seen[0]?.headers, { 'x-svc-tenant': 'demo', 'x-kept': 'yes', 'sec-websocket-protocol': 'chat' })
  t.notOk('authorization' in (service.seen[0]?.headers ?? {}) || 'cookie' in (service.seen[0]?.headers ?? {}))
})

t.test('neither a handshake nor a request reaches the service before its admission is stored, nor if that fails', async (t) => {
  const service = await openService(t, { answer: (_request, response) => void response.writeHead(404).end('none'), socket: () => {} })
  const { app, call, port, coding, usedTokens } = await openProxyProgram(t, [{ ...route, upstream: service.url }])
  t.equal((await call('/v1/models')).status, 200)
  const { decide } = app.store
  app.store.decideNow = () => null
  const stored = Promise.withResolvers<void>()
  let durable = stored.promise
  let admissions = 0
  app.store.decide = (async (...args: Parameters<typeof decide>) => {
    const decided = await decide(...args)
    // With outdated facts of the key an admission is decided again.
    if (decided.answer.outcome === 'admitted') admissions++
    return { ...decided, durable }
  }) as typeof decide
  const [socket, answered] = [connect(port, coding), call('/live/missing')]
  await eventually('both admissions', async () => (admissions === 2 ? true : null))
  for (let i = 0; i < 3; i++) await call('/v1/models').then((models) => models.text())
  t.same(service.seen, [])
  stored.resolve()
  await once(socket, 'open')
  t.match(await answered, { status: 404 })
  socket.close()
  await once(socket, 'close')
  t.equal(await usedTokens(), 20)

  durable = Promise.reject(new Unavailable('store', new Error('database or disk is full')))
  durable.catch(() => {})
  t.equal(await refused(connect(port, coding)), 503)
  t.equal((await call('/live/missing')).status, 503)
  t.equal(service.seen.length, 2)
  t.equal(await usedTokens(), 20)
})

t.test('a handshake without a key, or for a route without WebSocket, is refused; other routes see an ordinary request', async (t) => {
  const service = await openService(t, { socket: () => {} })
  const { port, coding, media, usedTokens } = await openProxyProgram(t, [{ ...route, upstream: service.url }, { ...route, prefix: '/plain', websocket: false, upstream: service.url }])
  t.equal(await refused(connect(port, 'svc_live_wrong')), 401)
  t.equal(await refused(connect(port, media)), 403)
  t.equal(await refused(connect(port, coding, '/plain')), 426)
  t.equal(await refused(connect(port, coding, '/live/..%2fx')), 400)
  t.equal(await refused(connect(port, coding, '/v1/responses')), 426)
  t.equal(await refused(connect(port, coding, '/nothing')), 404)
  t.same(service.seen, [])
  t.equal(await usedTokens(), 0)
})

t.test('a service that refuses, is away, or has a wrong certificate closes the connection without a name, and costs nothing', async (t) => {
  const refusing = await openService(t)
  const away = await openService(t)
  await away.close()
  const untrusted = await openService(t, { socket: () => {}, tls: certify(['127.0.0.1'], new Date(Date.now() - 86_400_000)) })
  const { port, coding, usedTokens } = await openProxyProgram(t, [refusing, away, untrusted].map(({ url }, i) => ({ ...route, prefix: `/live${i}`, upstream: url })))
  for (const i of [0, 1, 2]) {
    const socket = connect(port, coding, `/live${i}`)
    socket.once('open', () => socket.send('waits for the service'))
    const [code, reason] = await once(socket, 'close')
    t.same([code, String(reason)], [1011, 'the service failed'])
  }
  t.equal(await usedTokens(), 0)
})

t.test('silence ends a connection', async (t) => {
  const service = await openService(t, { socket: (socket) => void socket.send('hello') })
  const { port, coding } = await openProxyProgram(t, [{ ...route, upstream: service.url, timeoutMs: 300 }])
  const socket = connect(port, coding)
  await once(socket, 'message')
  const [code] = await once(socket, 'close')
  t.equal(code, 1006)
})

t.test('a service that does not read stops the client instead of filling the memory', async (t) => {
  const service = await openService(t, { socket: (socket) => socket.pause() })
  const { port, coding } = await openProxyProgram(t, [{ ...route, upstream: service.url }])
  const socket = connect(port, coding)
  await once(socket, 'open')
  const part = Buffer.alloc(1024 * 1024)
  for (let i = 0; i < 64; i++) socket.send(part)
  // What the sockets of the system hold lies between.
  const buffered = await eventually('a stop', async () => {
    const before = socket.bufferedAmount
    await new Promise((resolve) => setTimeout(resolve, 500))
    return socket.bufferedAmount === before && before > 0 ? before : null
  })
  t.ok(buffered > 16 * 1024 * 1024, String(buffered))
  socket.terminate()
})

t.test('messages count in the memory of bodies while they arrive and until they are taken, and beyond it the connection closes', async (t) => {
  const service = await openService(t, { socket: (socket) => socket.on('message', (data, binary) => socket.send(data, { binary })) })
  const { app, port, coding } = await openProxyProgram(t, [{ ...route, upstream: service.url }], { BODY_MEMORY_MIB: '16' })
  const held = () => heldBy(app)
  const open = async () => {
    const socket = connect(port, coding)
    await once(socket, 'open')
    return socket
  }
  const whole = await open()
  for (let i = 0; i < 10; i++) {
    whole.send(Buffer.alloc(1024 * 1024))
    await once(whole, 'message')
  }
  await eventually('all is given back', async () => ((await held()) === 0 ? true : null))

  const partial = await open()
  partial.send(Buffer.alloc(1024 * 1024), { fin: false })
  await eventually('the count of what has arrived', async () => ((await held()) > 1024 * 1024 ? true : null))
  partial.terminate()
  await eventually('all is given back', async () => ((await held()) === 0 ? true : null))

  const large = await open()
  large.on('error', () => {})
  large.send(Buffer.alloc(12 * 1024 * 1024))
  await once(large, 'close')
  await eventually('all is given back', async () => ((await held()) === 0 ? true : null))
  whole.send('still open')
  t.equal(String((await once(whole, 'message'))[0]), 'still open')
  whole.terminate()
})

t.test('pings and pongs free their own memory only: a message of which fragments have arrived stays counted', async (t) => {
  let atService: WebSocket | undefined
  const service = await openService(t, { socket: (socket) => void (atService = socket).on('message', (data, binary) => socket.send(data, { binary })) })
  const { app, port, coding } = await openProxyProgram(t, [{ ...route, upstream: service.url }])
  const freed = () => eventually('all is given back', async () => ((await heldBy(app)) === 0 ? true : null))
  const client = connect(port, coding)
  await once(client, 'open')
  client.send('hello')
  await once(client, 'message')
  await freed()

  const part = Buffer.alloc(1024 * 1024)
  for (const [from, to] of [[client, atService!], [atService!, client]] as const) {
    from.send(part, { fin: false })
    await eventually('the count of what has arrived', async () => ((await heldBy(app)) > part.length ? true : null))
    for (let i = 0; i < 5; i++) {
      from.ping(Buffer.alloc(125))
      await Promise.all([once(from, 'pong'), once(to, 'ping')])
    }
    t.ok((await heldBy(app)) > part.length)
    from.send(part)
    await once(client, 'message')
    await freed()

    from.ping(Buffer.alloc(125))
    await once(to, 'ping')
    await freed()
  }
  client.terminate()
})

t.test('a message that waits until the service is connected stays counted', async (t) => {
  const accepts = Promise.withResolvers<void>()
  const sockets = new WebSocketServer({ noServer: true })
  const server = createServer().on('upgrade', async (request, socket, head) => {
    await accepts.promise
    sockets.handleUpgrade(request, socket, head, (accepted) => accepted.on('message', (data) => accepted.send(data)))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => void server.close())
  const { app, port, coding } = await openProxyProgram(t, [{ ...route, upstream: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }])
  const client = connect(port, coding)
  await once(client, 'open')
  const message = Buffer.alloc(1024 * 1024)
  client.send(message)
  // With its header, of which eight bytes are the length and four the mask.
  await eventually('the count of the whole message', async () => ((await heldBy(app)) === message.length + 14 ? true : null))
  accepts.resolve()
  t.ok(message.equals((await once(client, 'message'))[0] as Buffer))
  await eventually('all is given back', async () => ((await heldBy(app)) === 0 ? true : null))
  client.terminate()
})

t.test('a side that reads nothing is sent a bounded number of pings', async (t) => {
  const service = await openService(t, { socket: (socket) => socket.pause() })
  const { port, coding } = await openProxyProgram(t, [{ ...route, upstream: service.url }], { BODY_MEMORY_MIB: '16' })
  const client = connect(port, coding)
  client.on('error', () => {})
  await once(client, 'open')
  const closed = once(client, 'close')
  let isClosed = false
  void closed.then(() => (isClosed = true))
  const data = Buffer.alloc(125)
  for (let i = 0; i < 1000 && !isClosed; i++) {
    for (let j = 0; j < 1000; j++) client.ping(data)
    await new Promise((resolve) => setImmediate(resolve))
  }
  await eventually('the end', async () => (isClosed ? true : null))
})

t.test('the program stops with connections open', async (t) => {
  const service = await openService(t, { socket: () => {} })
  const { port, coding, app } = await openProxyProgram(t, [{ ...route, upstream: service.url }])
  const socket = connect(port, coding)
  await once(socket, 'open')
  await Promise.all([app.close(), once(socket, 'close')])
})
