/** Requests that are sent to their upstream while their admission is being stored. */
import { once } from 'node:events'
import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { Unavailable } from '../../src/domain/errors.ts'
import { respond, streams, type Script } from '../fakes/upstream.ts'
import { chatStream, completion } from '../fakes/upstream-wire.ts'
import { post, startStream } from '../upstream/gateway.ts'
import { bearer, CODING, openGateway } from './gateway.ts'
import { setUp } from './vendor.ts'

const MESSAGES = [{ role: 'user', content: 'Hello' }]

/** A write that failed before anybody waited for it. */
function lost(): Promise<void> {
  const durable = Promise.reject<void>(new Unavailable('store', new Error('the disk is gone')))
  durable.catch(() => {})
  return durable
}

for (const [name, stream, script] of [['a JSON answer', false, (answer) => respond(answer, 200, completion('hi'))], ['a stream', true, streams(...chatStream('hi'))]] as [string, boolean, Script][]) {
  t.test(`${name} is requested before its admission is stored, and nothing of it is sent until then`, async (t) => {
    const [stored, asked] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const whole: Script = (answer, received) => script(answer.once('finish', asked.resolve), received)
    const { gateway } = await setUp(t, whole, { durable: () => stored.promise })
    let isStored = false
    const answered = post(gateway, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, ...(stream ? { stream } : {}) }).then((answer) => ({ ...answer, isStored }))
    await asked.promise
    // The gateway has read the upstream's answer before it answers these.
    for (let i = 0; i < 3; i++) await fetch(`${gateway.url}/v1/models`).then((models) => models.text())
    isStored = true
    stored.resolve()
    t.match(await answered, { status: 200, isStored: true, text: /hi/ })
    t.match(await gateway.settled(), { estimated: false })
  })

  t.test(`${name} whose admission cannot be stored is a 503, and charges nothing`, async (t) => {
    const { gateway } = await setUp(t, script, { durable: lost })
    const answer = await post(gateway, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, ...(stream ? { stream } : {}) })
    t.match(answer, { status: 503, body: { error: { type: String } } })
    t.equal(await gateway.settled(), null)
  })
}

t.test('a request whose client has left before it is sent goes nowhere, and charges nothing', async (t) => {
  let asked = 0
  const counting: Script = (answer) => {
    asked++
    respond(answer, 200, completion('hi'))
  }
  const { gateway } = await setUp(t, counting, {
    // After the admission, before the handler.
    decorate: (app) =>
      app.addHook('onRoute', (route) => {
        if (route.url === '/v1/chat/completions') route.preHandler = (_request, { raw }, done) => void raw.once('close', () => setImmediate(done))
      }),
  })
  const leaving = new AbortController()
  const body = JSON.stringify({ model: 'svc-code', messages: MESSAGES })
  const answer = fetch(`${gateway.url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json' }, body, signal: leaving.signal })
  while (gateway.admissions.length === 0) await nextTurn()
  leaving.abort()
  await t.rejects(answer)
  t.equal(await gateway.settled(), null)
  t.equal(asked, 0)
})

t.test('a silent stream gets no keep-alive comment before its admission is stored', async (t) => {
  const stored = Promise.withResolvers<void>()
  const admissions = [stored.promise, Promise.resolve()]
  const { gateway } = await setUp(t, () => {}, { keepAliveMs: 1, durable: () => admissions.shift() ?? Promise.resolve() })
  let isStored = false
  const late = startStream(gateway, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, stream: true }).then((answer) => ({ answer, isStored }))
  while (gateway.admissions.length === 0) await nextTurn()
  // Both are as silent, and this one began later.
  for (let i = 0; i < 3; i++) await once(await startStream(gateway, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, stream: true }), 'data')
  isStored = true
  stored.resolve()
  const first = await late
  t.match(first, { isStored: true, answer: { statusCode: 200 } })
  const [bytes] = await once(first.answer, 'data')
  t.equal(String(bytes), ': keep-alive\n\n')
})

t.test('a route of a plugin answers no success before the admission of its request is stored, and ends what it would have sent', async (t) => {
  const sent: Readable[] = []
  const gateway = await openGateway(t, (app) => {
    const config = { api: 'coding', creates: true, admits: () => ({ promptBytes: 0, maxOutputTokens: 10 }) } as const
    app.post('/v1/work', { config }, async () => ({ done: true }))
    app.post('/v1/pages', { config }, async () => {
      const pages = Readable.from(['one', 'two'])
      sent.push(pages)
      return pages
    })
  })
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const { raw } = await gateway.key(subscription)
  const work = (url: string) => gateway.app.inject({ method: 'POST', url, headers: bearer(raw), payload: {} })
  t.match(await work('/v1/work'), { statusCode: 200, body: '{"done":true}' })
  t.match(await work('/v1/pages'), { statusCode: 200, body: 'onetwo' })
  await gateway.settled(subscription)
  const { decide } = gateway.store
  gateway.store.decide = (async (...args: Parameters<typeof decide>) => ({ ...(await decide(...args)), durable: lost() })) as typeof decide
  for (const url of ['/v1/work', '/v1/pages']) {
    const answer = await work(url)
    t.match(answer, { statusCode: 503, headers: { 'retry-after': '2' } })
    t.equal(answer.json().error.code, 'unavailable')
  }
  t.ok(sent[1]?.destroyed)
  await gateway.settled(subscription)
})

t.test('a stream of a plugin that breaks while its admission is being stored is a 500, and harms nobody else', async (t) => {
  const gateway = await openGateway(t, (app) => {
    const config = { api: 'coding', creates: true, admits: () => ({ promptBytes: 0, maxOutputTokens: 10 }) } as const
    app.post('/v1/pages', { config }, async () => new Readable({ read() {} }).on('close', broken.resolve).destroy(new Error('the source is gone')))
  })
  const broken = Promise.withResolvers<void>()
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const { raw } = await gateway.key(subscription)
  const { decide } = gateway.store
  gateway.store.decide = (async (...args: Parameters<typeof decide>) => ({ ...(await decide(...args)), durable: broken.promise.then(() => nextTurn()) })) as typeof decide
  t.match(await gateway.app.inject({ method: 'POST', url: '/v1/pages', headers: bearer(raw), payload: {} }), { statusCode: 500 })
  await gateway.settled(subscription)
})
