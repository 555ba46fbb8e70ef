/** Requests that are sent to their upstream while their admission is being stored. */
import t from 'tap'
import { Unavailable } from '../../src/domain/errors.ts'
import { respond, streams, type Script } from '../fakes/upstream.ts'
import { chatStream, completion } from '../fakes/upstream-wire.ts'
import { post } from '../upstream/gateway.ts'
import { CODING, openGateway } from './gateway.ts'
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
    const { upstream, gateway } = await setUp(t, script, { durable: lost })
    const answer = await post(gateway, '/v1/chat/completions', { model: 'svc-code', messages: MESSAGES, ...(stream ? { stream } : {}) })
    t.match(answer, { status: 503, body: { error: { type: String } } })
    t.equal(upstream.requests.length, 1)
    t.equal(await gateway.settled(), null)
  })
}

t.test('a route of a plugin answers no success before the admission of its request is stored', async (t) => {
  const gateway = await openGateway(t, (app) => {
    app.post('/v1/work', { config: { api: 'coding', creates: true, admits: () => ({ promptBytes: 0, maxOutputTokens: 10 }) } }, async () => ({ done: true }))
  })
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const { raw } = await gateway.key(subscription)
  const work = () => gateway.app.inject({ method: 'POST', url: '/v1/work', headers: { authorization: `Bearer ${raw}` }, payload: {} })
  t.equal((await work()).statusCode, 200)
  await gateway.settled(subscription)
  const { decide } = gateway.store
  gateway.store.decide = (async (...args: Parameters<typeof decide>) => ({ ...(await decide(...args)), durable: lost() })) as typeof decide
  t.equal((await work()).statusCode, 503)
  await gateway.settled(subscription)
})
