/** Memory budget of request bodies: per API key and per process, with and without content-length. */
import { once } from 'node:events'
import { Agent, request, type IncomingMessage } from 'node:http'
import type { FastifyInstance } from 'fastify'
import t from 'tap'
import { bearer, CODING, openGateway } from './gateway.ts'

t.test('bodies in memory are limited per key and per process until their responses close', async (t) => {
  const waiting: (() => void)[] = []
  const routes = (app: FastifyInstance) => {
    app.post('/v1/hold', { config: { api: 'coding' } }, async () => {
      await new Promise<void>((resolve) => waiting.push(resolve))
      return { done: true }
    })
  }
  const gateway = await openGateway(t, routes, () => {}, {}, { budgetBytes: 2_500, callerBytes: 2_000 })
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const [one, other] = [await gateway.key(subscription), await gateway.key(subscription)]
  const hold = (raw: string, bytes: number) => gateway.app.inject({ method: 'POST', url: '/v1/hold', headers: { ...bearer(raw), 'content-type': 'application/json' }, payload: `"${'x'.repeat(bytes - 2)}"` })
  const begun = async (count: number) => {
    while (waiting.length < count) await new Promise((resolve) => setImmediate(resolve))
  }

  const first = hold(one.raw, 1_500)
  await begun(1)
  const refused = await hold(one.raw, 600)
  t.equal(refused.statusCode, 503, 'the limit of the key')
  t.equal(refused.headers['retry-after'], '1')
  t.match(refused.json(), { error: { code: 'server_overloaded' } })
  t.equal((await hold(other.raw, 1_100)).statusCode, 503, 'the limit of the process')
  const second = hold(other.raw, 900)
  await begun(2)
  for (const answer of waiting) answer()
  t.same([(await first).statusCode, (await second).statusCode], [200, 200])
  const again = hold(one.raw, 1_900)
  await begun(3)
  waiting[2]?.()
  t.equal((await again).statusCode, 200, 'a closed response frees its bytes')
})

t.test('a body without content-length counts its received bytes; one over the budget is read to its end and refused', async (t) => {
  const waiting: (() => void)[] = []
  const routes = (app: FastifyInstance) => {
    app.post('/v1/hold', { config: { api: 'coding' }, bodyLimit: 1_500 }, async () => {
      await new Promise<void>((resolve) => waiting.push(resolve))
      return { done: true }
    })
  }
  const gateway = await openGateway(t, routes, () => {}, {}, { budgetBytes: 2_000, callerBytes: 2_000 })
  const { raw } = await gateway.key(await gateway.plan('coder', { product: 'Coding', coding: CODING }))
  const { port } = new URL(await gateway.app.listen({ host: '127.0.0.1', port: 0 }))
  /** Sends the first part of a body. */
  const begin = async (part: string) => {
    const sent = request({ host: '127.0.0.1', port, path: '/v1/hold', method: 'POST', agent: false, headers: { ...bearer(raw), 'content-type': 'application/json' } })
    const status = once(sent, 'response').then(([response]) => (response as IncomingMessage).resume().statusCode)
    await new Promise<void>((resolve) => sent.write(part, () => resolve()))
    return { sent, status }
  }
  const begun = async (count: number) => {
    while (waiting.length < count) await new Promise((resolve) => setImmediate(resolve))
  }

  const slow = await Promise.all(Array.from({ length: 10 }, () => begin('"')))
  for (const { sent } of slow) sent.end(`${'x'.repeat(98)}"`)
  await begun(10)
  const tooMuch = await begin(`"${'x'.repeat(1_099)}`)
  tooMuch.sent.end('"')
  t.equal(await tooMuch.status, 503, '1,000 bytes are in use and 1,101 would be added')
  const fits = await begin(`"${'x'.repeat(900)}`)
  fits.sent.end('"')
  await begun(11)
  for (const answer of waiting) answer()
  t.same(await Promise.all([...slow, fits].map(({ status }) => status)), Array(11).fill(200))

  const long = await begin(`"${'x'.repeat(1_600)}"`)
  t.equal(await long.status, 413)
  const aborted = await begin(`"${'x'.repeat(1_400)}`)
  aborted.status.catch(() => {})
  aborted.sent.destroy()
  // Until the server has noticed the disconnect.
  for (let isTaken = false; !isTaken; ) {
    const again = await begin(`"${'x'.repeat(1_398)}"`)
    again.sent.end()
    isTaken = await Promise.race([again.status.then(() => false), begun(12).then(() => true)])
    if (!isTaken) continue
    waiting[11]?.()
    t.equal(await again.status, 200, 'refused and aborted bodies are freed')
  }
})

t.test('a client that disconnects during the key lookup holds no bytes', async (t) => {
  const routes = (app: FastifyInstance) => {
    app.post('/v1/hold', { config: { api: 'coding' } }, async () => ({ done: true }))
  }
  const gateway = await openGateway(t, routes, () => {}, {}, { budgetBytes: 2_000, callerBytes: 2_000 })
  const { raw } = await gateway.key(await gateway.plan('coder', { product: 'Coding', coding: CODING }))
  const headers = { ...bearer(raw), 'content-type': 'application/json' }
  const { port } = new URL(await gateway.app.listen({ host: '127.0.0.1', port: 0 }))
  const { findKey } = gateway.store
  const [lookedUp, disconnected] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  gateway.store.findKey = async (hash) => {
    lookedUp.resolve()
    await disconnected.promise
    return findKey(hash)
  }
  gateway.app.server.on('connection', (socket) => socket.once('close', () => setImmediate(disconnected.resolve)))
  const sent = request({ host: '127.0.0.1', port, path: '/v1/hold', method: 'POST', agent: false, headers: { ...headers, 'content-length': 1_500 } }).on('error', () => {})
  sent.write('"')
  await lookedUp.promise
  sent.destroy()
  await disconnected.promise
  for (let ticks = 0; ticks < 20; ticks++) await new Promise((resolve) => setImmediate(resolve))
  t.equal((await gateway.app.inject({ method: 'POST', url: '/v1/hold', headers, payload: `"${'x'.repeat(1_900)}"` })).statusCode, 200)
})

t.test('an unread body without content-length does not block its connection', async (t) => {
  const routes = (app: FastifyInstance) => {
    app.post('/v1/hold', { config: { api: 'coding' } }, async ({ body }) => ({ body }))
  }
  const gateway = await openGateway(t, routes)
  const { raw } = await gateway.key(await gateway.plan('coder', { product: 'Coding', coding: CODING }))
  const { port } = new URL(await gateway.app.listen({ host: '127.0.0.1', port: 0 }))
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  t.teardown(() => agent.destroy())
  const post = (type: string, body: string) => {
    const sent = request({ host: '127.0.0.1', port, path: '/v1/hold', method: 'POST', agent, headers: { ...bearer(raw), 'content-type': type, 'transfer-encoding': 'chunked' } })
    sent.end(body)
    return once(sent, 'response').then(([response]) => (response as IncomingMessage).resume().statusCode)
  }
  t.equal(await post('text/plain', 'x'.repeat(3_000_000)), 415)
  t.equal(await post('application/json', '"seen"'), 200)
})
