/** Memory budget of request bodies: what counts, the share of each tenant, minimum rate. A request counts 4 KiB, its bytes, and as much for their text. */
import { once } from 'node:events'
import { Agent, request, type IncomingMessage } from 'node:http'
import type { FastifyInstance } from 'fastify'
import t, { type Test } from 'tap'
import type { RequestBodyOptions } from '../../plugins/request-body/request-body.ts'
import { openBodyBudget } from '../../plugins/request-body/body-budget.ts'
import { bearer, CODING, openGateway } from './gateway.ts'

const KIB = 1024

/** A route that holds its requests until they are answered. */
async function openHold(t: Test, bodies: RequestBodyOptions, bodyLimit = 1024 * KIB) {
  const waiting: (() => void)[] = []
  const gateway = await openGateway(
    t,
    (app) => {
      app.post('/v1/hold', { config: { api: 'coding' }, bodyLimit }, async () => {
        await new Promise<void>((resolve) => waiting.push(resolve))
        return { done: true }
      })
    },
    () => {},
    {},
    bodies,
  )
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const keys = await Promise.all(['acme', 'acme', 'globex', 'initech'].map((tenant) => gateway.key(subscription, { tenant })))
  const [one, sibling, other, third] = keys.map(({ raw }) => raw) as [string, string, string, string]
  /** Sends a string of so many bytes, in one piece. */
  const hold = (raw: string, bytes: number) =>
    gateway.app.inject({ method: 'POST', url: '/v1/hold', headers: { ...bearer(raw), 'content-type': 'application/json' }, payload: `"${'x'.repeat(bytes - 2)}"` })
  const begun = async (count: number) => {
    while (waiting.length < count) await new Promise((resolve) => setImmediate(resolve))
  }
  const { port } = new URL(await gateway.app.listen({ host: '127.0.0.1', port: 0 }))
  /** Sends the head and the first part of a body. */
  const begin = async (raw: string, part: string, headers: Record<string, string | number> = {}) => {
    const sent = request({ host: '127.0.0.1', port, path: '/v1/hold', method: 'POST', agent: false, headers: { ...bearer(raw), 'content-type': 'application/json', ...headers } })
    const answer = once(sent, 'response').then(([response]) => (response as IncomingMessage).resume())
    const status = answer.then(({ statusCode }) => statusCode)
    status.catch(() => {})
    sent.on('error', () => {})
    await new Promise<void>((resolve) => sent.write(part, () => resolve()))
    return { sent, status }
  }
  return { gateway, waiting, hold, begun, begin, keys: { one, sibling, other, third } }
}

t.test('what bodies hold is limited: a tenant has as much as is left to all, until its responses close', async (t) => {
  const { hold, begun, waiting, keys } = await openHold(t, { budget: openBodyBudget(120 * KIB) })
  const first = hold(keys.one, 24 * KIB)
  await begun(1)
  const refused = await hold(keys.sibling, 8 * KIB)
  t.match([refused.statusCode, refused.headers['retry-after'], refused.json()], [503, '1', { error: { code: 'server_overloaded' } }], 'another key of the tenant')
  t.equal((await hold(keys.other, 20 * KIB)).statusCode, 503, 'another tenant has half of the rest')
  const second = hold(keys.other, 12 * KIB)
  await begun(2)
  const third = hold(keys.third, 4 * KIB)
  await begun(3)
  for (const answer of waiting) answer()
  t.same((await Promise.all([first, second, third])).map(({ statusCode }) => statusCode), [200, 200, 200])
  const again = hold(keys.one, 27 * KIB)
  await begun(4)
  waiting[3]?.()
  t.equal((await again).statusCode, 200, 'a closed response frees its memory')
})

t.test('eight half-open requests of a tenant with large announced lengths hold what they have sent', async (t) => {
  const { hold, begin, begun, waiting, keys } = await openHold(t, { budget: openBodyBudget(256 * KIB) })
  const announced = { 'content-length': 100 * KIB }
  const open = await Promise.all(Array.from({ length: 8 }, (_, i) => begin(i % 2 ? keys.one : keys.sibling, '"', announced)))
  for (const [i, raw] of [keys.one, keys.other].entries()) {
    const answer = hold(raw, 20 * KIB)
    await begun(i + 1)
    waiting[i]?.()
    t.equal((await answer).statusCode, 200)
  }
  for (const { sent } of open) sent.destroy()
})

t.test('a body that arrives slower than the minimum rate is refused, and its connection closed', async (t) => {
  const { begin, keys } = await openHold(t, { rate: { windowMs: 50, bytes: 100 } })
  const [silent, chunked] = await Promise.all([begin(keys.one, '"', { 'content-length': 1000 }), begin(keys.one, '"')])
  t.same(await Promise.all([silent.status, chunked.status]), [408, 408])
  for (const { sent } of [silent, chunked]) sent.destroy()
})

t.test('a body without content-length counts what has arrived; one over the budget is refused', async (t) => {
  const { begin, begun, waiting, keys } = await openHold(t, { budget: openBodyBudget(400 * KIB) }, 64 * KIB)
  const slow = await Promise.all(Array.from({ length: 10 }, () => begin(keys.one, '"')))
  for (const { sent } of slow) sent.end(`${'x'.repeat(98)}"`)
  await begun(10)
  const large = await begin(keys.one, `"${'x'.repeat(60 * KIB)}`)
  large.sent.end('"')
  await begun(11)
  const tooMuch = await begin(keys.one, `"${'x'.repeat(60 * KIB)}`)
  tooMuch.sent.end('"')
  t.equal(await tooMuch.status, 503, 'the share of the tenant is 200 KiB')
  for (const answer of waiting) answer()
  t.same(await Promise.all([...slow, large].map(({ status }) => status)), Array(11).fill(200))

  const long = await begin(keys.one, `"${'x'.repeat(65 * KIB)}"`)
  t.equal(await long.status, 413)
  long.sent.destroy()
  const aborted = await begin(keys.one, `"${'x'.repeat(40 * KIB)}`)
  aborted.sent.destroy()
  // Until the server has noticed the disconnect.
  for (let status: number | undefined; status !== 200; ) {
    const again = await begin(keys.one, `"${'x'.repeat(60 * KIB)}"`)
    again.sent.end()
    const answering = setInterval(() => waiting.forEach((answer) => answer()), 1)
    status = await again.status
    clearInterval(answering)
  }
  t.pass('refused and aborted bodies are freed')
})

t.test('a client that disconnects during the key lookup holds no bytes', async (t) => {
  const routes = (app: FastifyInstance) => {
    app.post('/v1/hold', { config: { api: 'coding' } }, async () => ({ done: true }))
  }
  const gateway = await openGateway(t, routes, () => {}, {}, { budget: openBodyBudget(16_384) })
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

t.test('a large answer counts until its client has read it, or has left', async (t) => {
  // More than the operating system takes from the server and for the client.
  const whole = 32 * 1024 * KIB
  const budget = openBodyBudget(3 * whole)
  const gateway = await openGateway(
    t,
    (app) => {
      app.get('/v1/large', { config: { api: 'coding' } }, async () => ({ text: 'x'.repeat(whole) }))
    },
    () => {},
    {},
    { budget },
  )
  const { raw } = await gateway.key(await gateway.plan('coder', { product: 'Coding', coding: CODING }))
  const { port } = new URL(await gateway.app.listen({ host: '127.0.0.1', port: 0 }))
  const ask = async () => {
    const sent = request({ host: '127.0.0.1', port, path: '/v1/large', agent: false, headers: bearer(raw) })
    sent.on('error', () => {})
    sent.end()
    const [response] = (await once(sent, 'response')) as [IncomingMessage]
    return response
  }
  const unread = await ask()
  unread.on('error', () => {})
  t.equal(unread.statusCode, 200)
  t.ok(budget.held() >= whole)
  const refused = await ask()
  t.equal(refused.statusCode, 503, 'two of them are more than the half that a tenant gets')
  refused.resume()
  unread.destroy()
  while (budget.held() > 0) await new Promise((resolve) => setImmediate(resolve))
  const read = await ask()
  t.equal((await read.toArray()).reduce((bytes: number, part: Buffer) => bytes + part.length, 0), whole + '{"text":""}'.length)
  while (budget.held() > 0) await new Promise((resolve) => setImmediate(resolve))
})
