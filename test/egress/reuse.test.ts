import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import t, { type Test } from 'tap'
import { type Ask, type EgressOptions, openEgress } from '../../src/egress/egress.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { certify } from './certificate.ts'

const post = { method: 'POST', body: '{"a":1}', deadlineMs: 60_000, maxBytes: 20_000, over: 'cut', redirects: 0, reuse: true } as const satisfies Omit<Ask, 'url'>

function open(t: Test, options: Partial<EgressOptions> = {}) {
  const egress = openEgress({ allow: ['127.0.0.0/8'], clock: () => 0, ...options })
  t.teardown(egress.close)
  return egress
}

/** A server whose connections the test answers by hand, numbered from 1. */
async function connectionsOf(t: Test) {
  const sockets: Socket[] = []
  const server = createServer((socket) => {
    sockets.push(socket.on('error', () => {}))
    server.emit('opened')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const opened = async (count: number): Promise<Socket> => {
    while (sockets.length < count) await once(server, 'opened')
    return sockets[count - 1] as Socket
  }
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`, sockets, opened }
}

const NO_CONTENT = 'HTTP/1.1 204 No Content\r\n\r\n'

/** Answers one request. */
async function answer(socket: Socket, text = NO_CONTENT): Promise<void> {
  await once(socket, 'data')
  socket.write(text)
}

/** The same with a guard that has kept the first connection after its answer. */
async function keptConnectionOf(t: Test) {
  const server = await connectionsOf(t)
  const egress = open(t)
  const send = (ask: Pick<Ask, 'signal'> = {}) => egress.request({ url: server.url, ...post, ...ask })
  const first = send()
  await answer(await server.opened(1))
  t.match(await first, { outcome: 'answered' })
  return { ...server, send }
}

t.test('requests to one origin share a connection, one after the other, and only those that may arrive twice', async (t) => {
  const receiver = await openReceiver(t)
  const other = await openReceiver(t)
  const egress = open(t)
  for (let n = 0; n < 20; n++) t.match(await egress.request({ url: `${receiver.url}/hook`, ...post }), { outcome: 'answered', status: 204 })
  t.equal(receiver.connections(), 1)
  await egress.request({ url: `${other.url}/hook`, ...post })
  t.equal(other.connections(), 1, 'another origin has its own')
  const together = Array.from({ length: 8 }, () => egress.request({ url: `${receiver.url}/hook`, ...post }))
  t.equal((await Promise.all(together)).filter(({ outcome }) => outcome === 'answered').length, 8)
  t.ok(receiver.connections() <= 8)
  t.equal(receiver.received.length, 28)
  await egress.request({ url: `${other.url}/hook`, ...post, reuse: false })
  t.match(other.received.map(({ headers }) => headers.connection), ['keep-alive', 'close'])
})

t.test('the idle connections are closed with the guard', async (t) => {
  const receiver = await openReceiver(t)
  const egress = open(t)
  await Promise.all(Array.from({ length: 4 }, () => egress.request({ url: `${receiver.url}/hook`, ...post })))
  t.ok(receiver.connections() > 0)
  egress.close()
  await receiver.idle()
})

t.test('each request resolves the name: a connection to an address that it has no longer is not used', async (t) => {
  const receiver = await openReceiver(t)
  const answers = [['127.0.0.1'], ['10.0.0.1'], ['127.0.0.2', '127.0.0.1'], ['127.0.0.2']]
  const egress = open(t, { allow: ['127.0.0.0/8'], lookup: async () => answers.shift() ?? [] })
  const url = `http://rebind.example:${receiver.port}/hook`
  t.match(await egress.request({ url, ...post }), { outcome: 'answered' })
  t.match(await egress.request({ url, ...post }), { outcome: 'failed', reason: 'dns' }, 'an address that is not allowed')
  t.match(await egress.request({ url, ...post }), { outcome: 'answered' }, 'one of its addresses')
  t.equal(receiver.connections(), 1)
  t.match(await egress.request({ url, ...post }), { outcome: 'failed', reason: 'connect' }, 'another address, where nobody listens')
})

t.test('a request over a connection that its server closes meanwhile is sent again over a new one, once', async (t) => {
  const { send, sockets, opened } = await keptConnectionOf(t)
  const second = send()
  await once(await opened(1), 'data')
  sockets[0]?.destroy()
  await answer(await opened(2))
  t.match(await second, { outcome: 'answered', status: 204 })
  const third = send()
  await once(await opened(2), 'data')
  sockets[1]?.destroy()
  const last = await opened(3)
  await once(last, 'data')
  last.destroy()
  t.match(await third, { outcome: 'failed', reason: 'reset' }, 'a new connection that breaks is a failure')
  t.equal(sockets.length, 3)
})

t.test('bytes after the last answer of a kept connection are no answer: the request is sent again over a new one, once', async (t) => {
  const { send, sockets, opened } = await keptConnectionOf(t)
  const second = send()
  await answer(await opened(1), 'the body of a 204')
  await answer(await opened(2))
  t.match(await second, { outcome: 'answered', status: 204 })
  const third = send()
  await answer(await opened(2), 'the body of a 204')
  await answer(await opened(3), 'not HTTP')
  t.match(await third, { outcome: 'failed', reason: 'protocol' }, 'on a new connection it is a failure')
  t.equal(sockets.length, 3)
})

t.test('an answer that began and broke off is a failure, over a kept connection too', async (t) => {
  const { send, sockets, opened } = await keptConnectionOf(t)
  const second = send()
  await answer(await opened(1), 'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx')
  sockets[0]?.end()
  t.match(await second, { outcome: 'failed', reason: 'reset', status: 200 })
  t.equal(sockets.length, 1)
})

t.test('interim answers that nobody asked for are skipped over a kept connection, each time', async (t) => {
  const { url, sockets, opened } = await connectionsOf(t)
  const egress = open(t)
  for (let n = 0; n < 3; n++) {
    const asked = egress.request({ url, ...post })
    await answer(await opened(1), `HTTP/1.1 100 Continue\r\n\r\n${NO_CONTENT}`)
    t.match(await asked, { outcome: 'answered', status: 204 })
  }
  t.equal(sockets.length, 1)
})

const UNUSABLE: [name: string, text: string][] = [
  ['a server that closes', 'HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n'],
  ['an HTTP/1.0 server', 'HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ['a body that is not read to its end', `HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n${'x'.repeat(25_000)}`],
  ['more than one answer', `${NO_CONTENT}HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx`],
]
for (const [name, text] of UNUSABLE) {
  t.test(`no second request goes over the connection of ${name}`, async (t) => {
    const { url, sockets, opened } = await connectionsOf(t)
    const egress = open(t)
    for (const count of [1, 2]) {
      const asked = egress.request({ url, ...post })
      await answer(await opened(count), text)
      t.match(await asked, { outcome: 'answered' })
    }
    t.equal(sockets.length, 2)
  })
}

t.test('a request that is aborted closes its connection, and the next one has another', async (t) => {
  const { send, sockets, opened } = await keptConnectionOf(t)
  const stop = new AbortController()
  const second = send({ signal: stop.signal })
  const socket = await opened(1)
  await once(socket, 'data')
  const closed = once(socket, 'close')
  stop.abort()
  t.match(await second, { outcome: 'failed', reason: 'canceled' })
  await closed
  const third = send()
  await answer(await opened(2))
  t.match(await third, { outcome: 'answered' })
  t.equal(sockets.length, 2)
})

t.test('a TLS connection is kept as well, and belongs to one name', async (t) => {
  const { key, cert } = certify(['shared.example'], new Date(Date.now() - 86_400_000))
  const before = getCACertificates('default')
  setDefaultCACertificates([...before, cert])
  t.teardown(() => setDefaultCACertificates(before))
  const receiver = await openReceiver(t, { tls: { key, cert } })
  const egress = open(t, { lookup: async () => ['127.0.0.1'] })
  const to = (host: string) => egress.request({ url: `https://${host}:${receiver.port}/`, ...post })
  for (let n = 0; n < 3; n++) t.match(await to('shared.example'), { outcome: 'answered', status: 204 })
  t.equal(receiver.connections(), 1)
  t.match(await to('other.example'), { outcome: 'failed', reason: 'tls' }, 'a name that the certificate does not have')
})
