/** Requests that are refused before their body has arrived, over real sockets. */
import { connect, type Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import t, { type Test } from 'tap'
import type { Lingering } from '../../plugins/errors/lingering-close.ts'
import { bearer, CODING, openGateway } from './gateway.ts'

const MIB = 1024 * 1024
const LIMIT = 2 * MIB

type Headers = Record<string, string | number>

/** A gateway with a route that accepts 2 MiB. */
async function openRoute(t: Test, lingering?: Lingering) {
  const routes = (app: FastifyInstance) => {
    app.post('/v1/take', { config: { api: 'coding' }, bodyLimit: LIMIT }, async () => ({ taken: true }))
  }
  const gateway = await openGateway(t, routes, () => {}, {}, {}, lingering)
  const { raw } = await gateway.key(await gateway.plan('coder', { product: 'Coding', coding: CODING }))
  const { port } = new URL(await gateway.app.listen({ host: '127.0.0.1', port: 0 }))
  const head = (more: Headers) =>
    `POST /v1/take HTTP/1.1\r\n${Object.entries({ host: 'tollgate.test', 'content-type': 'application/json', ...bearer(raw), ...more }).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`
  return { head, open: () => openConnection(t, Number(port)) }
}

type Connection = {
  /** Resolves when the kernel has accepted the bytes; rejects when the connection is closed. */
  send(bytes: string | Buffer): Promise<void>
  /** The next answer: its status, and whether it closes the connection. */
  answer(): Promise<{ status: number; isLast: boolean }>
  /** How the connection ended. */
  ended: Promise<'closed' | 'reset'>
}

/** A client that reads nothing until `answer` is called. */
async function openConnection(t: Test, port: number): Promise<Connection> {
  const socket: Socket = connect({ port, host: '127.0.0.1' })
  t.teardown(() => socket.destroy())
  let text = ''
  // A data listener starts the flow.
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
  t.test(`a client that sends a body above the limit before it reads gets 413: ${connection}, Content-Length`, async (t) => {
    const { head, open } = await openRoute(t)
    const client = await open()
    await client.send(head({ connection, 'content-length': 12 * MIB }))
    await client.send(Buffer.alloc(12 * MIB, 'x'))
    t.same(await client.answer(), { status: 413, isLast: true })
    t.equal(await client.ended, 'closed')
  })

  t.test(`a client that sends a body above the limit before it reads gets 413: ${connection}, chunked`, async (t) => {
    const { head, open } = await openRoute(t)
    const client = await open()
    await client.send(head({ connection, 'transfer-encoding': 'chunked' }))
    await client.send(chunk.repeat((12 * MIB) / CHUNK))
    await client.send('0\r\n\r\n')
    t.same(await client.answer(), { status: 413, isLast: true })
    t.equal(await client.ended, 'closed')
  })
}

t.test('a client that reads while it sends gets 413 before the end of its body', async (t) => {
  const { head, open } = await openRoute(t)
  const client = await open()
  await client.send(head({ 'content-length': 12 * MIB }))
  t.same(await client.answer(), { status: 413, isLast: true })
})

t.test('the rest of a refused request is read up to a limit of bytes', async (t) => {
  const { head, open } = await openRoute(t, { bytes: 4 * MIB, ms: 60_000 })
  const client = await open()
  await client.send(head({ 'content-length': 1024 * MIB }))
  t.same(await client.answer(), { status: 413, isLast: true })
  const part = Buffer.alloc(MIB, 'x')
  let sent = 0
  for (; sent < 1024; sent++) if (await client.send(part).then(() => false, () => true)) break
  t.ok(sent >= 4 && sent < 1024, `${sent} MiB were sent`)
})

t.test('the rest of a refused request is read up to a limit of time', async (t) => {
  const { head, open } = await openRoute(t, { bytes: 4 * MIB, ms: 50 })
  const client = await open()
  await client.send(head({ 'content-length': 12 * MIB }))
  t.same(await client.answer(), { status: 413, isLast: true })
  await client.ended
  await t.rejects((async () => {
    for (;;) await client.send('x')
  })())
})

t.test('after 401 the connection stays open once the body has arrived, and closes if it does not arrive', async (t) => {
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

t.test('after invalid JSON the connection stays open', async (t) => {
  const { head, open } = await openRoute(t)
  const client = await open()
  for (const [body, status] of [['{', 400], ['{"a":1,"a":2}', 400], ['\xff', 400], ['{}', 200]] as const) {
    await client.send(`${head({ 'content-length': Buffer.byteLength(body) })}${body}`)
    t.same(await client.answer(), { status, isLast: false }, body)
    await client.send(`${head({ 'transfer-encoding': 'chunked' })}${Buffer.byteLength(body).toString(16)}\r\n${body}\r\n0\r\n\r\n`)
    t.same(await client.answer(), { status, isLast: false }, `${body} in chunks`)
  }
  await client.send(`${head({ connection: 'close', 'content-length': 1 })}{`)
  t.same(await client.answer(), { status: 400, isLast: true }, 'unless the client asked to close it')
})
