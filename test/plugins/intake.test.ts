import { Readable } from 'node:stream'
import type { FastifyInstance } from 'fastify'
import t from 'tap'
import { bearer, CODING, openGateway } from './gateway.ts'

t.test('bodies are held within a budget, for each key and for all, until their answers have ended', async (t) => {
  const waiting: (() => void)[] = []
  const routes = (app: FastifyInstance) => {
    app.post('/v1/hold', { config: { api: 'coding' } }, async () => {
      await new Promise<void>((resolve) => waiting.push(resolve))
      return { done: true }
    })
  }
  const gateway = await openGateway(t, routes, () => {}, {}, { budgetBytes: 2_500, keyBytes: 2_000 })
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const [one, other] = [await gateway.key(subscription), await gateway.key(subscription)]
  const hold = (raw: string, bytes: number) => gateway.app.inject({ method: 'POST', url: '/v1/hold', headers: { ...bearer(raw), 'content-type': 'application/json' }, payload: `"${'x'.repeat(bytes - 2)}"` })
  const begun = async (count: number) => {
    while (waiting.length < count) await new Promise((resolve) => setImmediate(resolve))
  }

  const first = hold(one.raw, 1_500)
  await begun(1)
  const refused = await hold(one.raw, 600)
  t.equal(refused.statusCode, 503, 'the share of the key')
  t.equal(refused.headers['retry-after'], '1')
  t.match(refused.json(), { error: { code: 'server_overloaded' } })
  t.equal((await hold(other.raw, 1_100)).statusCode, 503, 'the budget of all')
  const second = hold(other.raw, 900)
  await begun(2)
  for (const answer of waiting) answer()
  t.same([(await first).statusCode, (await second).statusCode], [200, 200])
  const again = hold(one.raw, 1_900)
  await begun(3)
  waiting[2]?.()
  t.equal((await again).statusCode, 200, 'what was held is free again')
})

t.test('a body of unknown length counts as the longest until it has arrived, and then as what it is', async (t) => {
  const waiting: (() => void)[] = []
  let arriving = 0
  const routes = (app: FastifyInstance) => {
    app.addHook('preParsing', async () => void arriving++)
    app.post('/v1/hold', { config: { api: 'coding' }, bodyLimit: 1_000 }, async () => {
      await new Promise<void>((resolve) => waiting.push(resolve))
      return { done: true }
    })
  }
  const gateway = await openGateway(t, routes, () => {}, {}, { budgetBytes: 2_000, keyBytes: 2_000 })
  const { raw } = await gateway.key(await gateway.plan('coder', { product: 'Coding', coding: CODING }))
  const hold = (payload: Readable) =>
    gateway.app.inject({ method: 'POST', url: '/v1/hold', headers: { ...bearer(raw), 'content-type': 'application/json', 'transfer-encoding': 'chunked' }, payload })
  const answers = []
  for (let n = 1; n <= 10; n++) {
    answers.push(hold(Readable.from([`"${'x'.repeat(98)}"`])))
    while (waiting.length < n) await new Promise((resolve) => setImmediate(resolve))
  }
  const body = new Readable({ read() {} })
  const slow = hold(body)
  while (arriving < 11) await new Promise((resolve) => setImmediate(resolve))
  t.equal((await hold(Readable.from(['""']))).statusCode, 503, 'while one arrives that may become as long as is allowed, there is no room')
  body.push('""')
  body.push(null)
  while (waiting.length < 11) await new Promise((resolve) => setImmediate(resolve))
  for (const answer of waiting) answer()
  t.same((await Promise.all([...answers, slow])).map(({ statusCode }) => statusCode), Array(11).fill(200))
})
