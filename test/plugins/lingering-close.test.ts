/** What becomes of a connection whose request was refused before its body had arrived, over real sockets. */
import { connect, type Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import t, { type Test } from 'tap'
import { bearer, CODING, openGateway } from './gateway.ts'

const MIB = 1024 * 1024
const LIMIT = 2 * MIB

type Head = Record<string, string | number>

/** A gateway with a route that takes 2 MiB, and what sends requests to it byte by byte. */
async function openRoute(t: Test, lingering?: { bytes: number; ms: number }) {
  const routes = (app: FastifyInstance) => {
    app.post('/v1/take', { config: { api: 'coding' }, bodyLimit: LIMIT }, async () => ({ taken: true }))
  }
  const gateway = await openGateway(t, routes, () => {}, {}, {}, lingering)
  const { raw } = await gateway.key(await gateway.plan('coder', { product: 'Coding', coding: CODING }))
  const { port } = new URL(await gateway.app.listen({ host: '127.0.0.1', port: 0 }))
  const head = (more: Head) =>
    `POST /v1/take HTTP/1.1\r\n${Object.entries({ host: 'tollgate.test', 'content-type': 'application/json', ...bearer(raw), ...more }).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`
  return { head, open: () => openConnection(t, Number(port)) }
}

type Connection = {
  /** Resolves when the kernel has taken the bytes; rejects when the connection is gone. */
  send(bytes: string | Buffer): Promise<void>
  /** The next answer: its status, and whether it is the last of its connection. */
  answer(): Promise<{ status: number; isLast: boolean }>
  /** How the connection ended. */
  ended: Promise<'closed' | 'reset'>
}

/** A client that reads nothing before `answer` is called. */
async function openConnection(t: Test, port: number): Promise<Connection> {
  const socket: Socket = connect({ port, host: '127.0.0.1' })
  t.teardown(() => socket.destroy())
  let text = ''
  // With a listener it would flow, and pause at once.
  socket.on('data', (part) => (text += part)).pause()
  const ended = new Promise<'closed' | 'reset'>((resolve) => {
    socket.on('error', () => resolve('reset'))
    socket.on('end', () => resolve('closed'))
  })
  return {
    ended,
    send: (bytes) => new Promise((resolve, reject) => socket.write(bytes, (error) => (error ? reject(error) : resolve()))),
    async answer() {
      socket.resume()
      for (;;) {
        const [, status, fields = '', rest = ''] = /^HTTP\/1\.1 (\d+) [^\r]*\r\n(.*?)\r\n\r\n(.*)$/s.exec(text) ?? []
        const length = Number(/^content-length: (\d+)$/im.exec(fields)?.[1])
        if (status !== undefined && rest.length >= length) {
          text = rest.slice(length)
          return { status: Number(status), isLast: /^connection: close\r?$/im.test(fields) }
        }
        const gone = await Promise.race([ended, new Promise<null>((resolve) => setImmediate(resolve, null))])
        if (gone !== null && text === '') throw new Error(`the connection was ${gone} before an answer`)
      }
    },
  }
}

const CHUNK = 64 * 1024
const chunk = `${CHUNK.toString(16)}\r\n${'x'.repeat(CHUNK)}\r\n`

for (const connection of ['keep-alive', 'close']) {
  t.test(`a body that is too large is answered with 413, though its client reads nothing before it has sent all: ${connection}, with its length`, async (t) => {
    const { head, open } = await openRoute(t)
    const client = await open()
    await client.send(head({ connection, 'content-length': 12 * MIB }))
    await client.send(Buffer.alloc(12 * MIB, 'x'))
    t.same(await client.answer(), { status: 413, isLast: true })
    t.equal(await client.ended, 'closed')
  })

  t.test(`a body that is too large is answered with 413, though its client reads nothing before it has sent all: ${connection}, in chunks`, async (t) => {
    const { head, open } = await openRoute(t)
    const client = await open()
    await client.send(head({ connection, 'transfer-encoding': 'chunked' }))
    await client.send(chunk.repeat((12 * MIB) / CHUNK))
    await client.send('0\r\n\r\n')
    t.same(await client.answer(), { status: 413, isLast: true })
    t.equal(await client.ended, 'closed')
  })
}

t.test('a client that reads while it sends has the 413 at once', async (t) => {
  const { head, open } = await openRoute(t)
  const client = await open()
  await client.send(head({ 'content-length': 12 * MIB }))
  t.same(await client.answer(), { status: 413, isLast: true })
})

t.test('what comes after an answer is read no further than the bound in bytes', async (t) => {
  const { head, open } = await openRoute(t, { bytes: 4 * MIB, ms: 60_000 })
  const client = await open()
  await client.send(head({ 'content-length': 1024 * MIB }))
  t.same(await client.answer(), { status: 413, isLast: true })
  const part = Buffer.alloc(MIB, 'x')
  let sent = 0
  for (; sent < 1024; sent++) if (await client.send(part).then(() => false, () => true)) break
  t.ok(sent >= 4 && sent < 1024, `${sent} MiB were sent`)
})

t.test('what comes after an answer is waited for no longer than the bound in time', async (t) => {
  const { head, open } = await openRoute(t, { bytes: 4 * MIB, ms: 50 })
  const client = await open()
  await client.send(head({ 'content-length': 12 * MIB }))
  t.same(await client.answer(), { status: 413, isLast: true })
  await client.ended
  await t.rejects((async () => {
    for (;;) await client.send('x')
  })())
})

t.test('a refusal that comes before its body leaves the connection open once the body has arrived, and ends it when that does not come', async (t) => {
  const { head, open } = await openRoute(t, { bytes: 4 * MIB, ms: 500 })
  const client = await open()
  await client.send(head({ authorization: 'none', 'content-length': MIB }))
  t.same(await client.answer(), { status: 401, isLast: false })
  await client.send(Buffer.alloc(MIB, 'x'))
  await client.send(`${head({ 'content-length': 2 })}{}`)
  t.same(await client.answer(), { status: 200, isLast: false })
  await client.send(head({ authorization: 'none', 'content-length': MIB }))
  t.same(await client.answer(), { status: 401, isLast: false })
  await client.ended
})

t.test('a request that is refused for its JSON leaves its connection open', async (t) => {
  const { head, open } = await openRoute(t)
  const client = await open()
  for (const [body, status] of [['{', 400], ['{"a":1,"a":2}', 400], ['\xff', 400], ['{}', 200]] as const) {
    await client.send(`${head({ 'content-length': Buffer.byteLength(body) })}${body}`)
    t.same(await client.answer(), { status, isLast: false }, body)
    await client.send(`${head({ 'transfer-encoding': 'chunked' })}${Buffer.byteLength(body).toString(16)}\r\n${body}\r\n0\r\n\r\n`)
    t.same(await client.answer(), { status, isLast: false }, `${body} in chunks`)
  }
  await client.send(`${head({ connection: 'close', 'content-length': 1 })}{`)
  t.same(await client.answer(), { status: 400, isLast: true }, 'unless the client closes it')
})
