/** Webhook attempts outside the schedule: redelivery of one delivery, replay of a time range. */
import t, { type Test } from 'tap'
import { openReceiver, verifies, type Receiver } from '../fakes/receiver.ts'
import { bearer, START } from './gateway.ts'
import { openStudio, type Studio } from './studio.ts'

type Shown = { id: string; status: string; next_attempt_at: string | null; attempts: { number: number; at: string; redelivery: boolean; status_code: number | null }[] }
type Opened = Studio & { receiver: Receiver; deliveryOf(id: string, satisfies: (delivery: Shown) => boolean): Promise<Shown>; replay(body: object, raw?: string): ReturnType<Studio['get']> }

async function open(t: Test): Promise<Opened> {
  const receiver = await openReceiver(t)
  const studio = await openStudio(t)
  return {
    ...studio,
    receiver,
    async deliveryOf(id, satisfies) {
      for (;;) {
        const [delivery] = (await studio.get(`/api/v1/generations/${id}/deliveries`)).json().data as Shown[]
        if (delivery && satisfies(delivery)) return delivery
        await new Promise((resolve) => setTimeout(resolve, 5))
      }
    },
    replay: (body, raw = studio.raw) => studio.app.inject({ method: 'POST', url: '/api/v1/deliveries/replay', headers: bearer(raw), payload: body }),
  }
}

const has = (status: string, count: number) => (delivery: Shown) => delivery.status === status && delivery.attempts.length === count

t.test('a delivered webhook is sent once more: the same body and id, freshly signed', async (t) => {
  const studio = await open(t)
  const { id } = (await studio.create({ webhook_url: studio.receiver.url })).json()
  const delivered = await studio.deliveryOf(id, has('delivered', 1))
  studio.time.now += 60_000
  const asked = await studio.post(`/api/v1/deliveries/${delivered.id}/redeliver`)
  t.equal(asked.statusCode, 202)
  t.match(asked.json(), { id: delivered.id, object: 'delivery', task_id: id, created_at: new Date(START).toISOString() })
  const [first, second] = await studio.receiver.arrived(2)
  t.same(second?.rawBody, first?.rawBody)
  t.equal(second?.headers['webhook-id'], first?.headers['webhook-id'])
  t.not(second?.headers['webhook-timestamp'], first?.headers['webhook-timestamp'])
  t.ok(second && (await verifies(second, studio.raw)))
  t.match((await studio.deliveryOf(id, has('delivered', 2))).attempts, [{ number: 1, redelivery: false }, { number: 2, redelivery: true, status_code: 204 }])
})

t.test('a redelivery that fails uses up no attempt of the schedule, nor moves it', async (t) => {
  const studio = await open(t)
  studio.receiver.always(() => ({ status: 503 }))
  const { id } = (await studio.create({ webhook_url: studio.receiver.url })).json()
  let delivery = await studio.deliveryOf(id, has('pending', 1))
  const scheduled = delivery.next_attempt_at
  studio.time.now += 1_000
  t.equal((await studio.post(`/api/v1/deliveries/${delivery.id}/redeliver`)).statusCode, 202)
  delivery = await studio.deliveryOf(id, has('pending', 2))
  t.equal(delivery.next_attempt_at, scheduled)
  for (let made = 3; made <= 6; made++) {
    studio.time.now = Date.parse(delivery.next_attempt_at ?? '')
    delivery = await studio.deliveryOf(id, ({ attempts }) => attempts.length === made)
  }
  t.match(delivery, { status: 'failed', next_attempt_at: null })
  t.same(delivery.attempts.map(({ redelivery }) => redelivery), [false, true, false, false, false, false], 'five of the schedule, one besides')

  studio.time.now += 1_000
  await studio.post(`/api/v1/deliveries/${delivery.id}/redeliver`)
  t.match(await studio.deliveryOf(id, has('failed', 7)), { next_attempt_at: null }, 'one more, and no schedule after it')
  studio.receiver.always(() => ({}))
  studio.time.now += 120_000
  await studio.post(`/api/v1/deliveries/${delivery.id}/redeliver`)
  await studio.deliveryOf(id, has('delivered', 8))
})

t.test('while the first attempt is to come or an attempt is under way, a redelivery adds none', async (t) => {
  const studio = await open(t)
  const answered = Promise.withResolvers<void>()
  studio.receiver.next({ until: answered.promise })
  const { id } = (await studio.create({ webhook_url: studio.receiver.url })).json()
  await studio.receiver.arrived(1)
  const { id: delivery } = await studio.deliveryOf(id, has('pending', 0))
  for (let i = 0; i < 3; i++) t.equal((await studio.post(`/api/v1/deliveries/${delivery}/redeliver`)).statusCode, 202)
  answered.resolve()
  await studio.deliveryOf(id, has('delivered', 1))
  studio.time.now += 3_600_000
  await studio.post(`/api/v1/deliveries/${delivery}/redeliver`)
  await studio.deliveryOf(id, has('delivered', 2))
  t.equal(studio.receiver.received.length, 2)
})

t.test('a redelivery that failed is not free: the next one of that delivery waits, in a replay as well', async (t) => {
  const studio = await open(t)
  studio.receiver.always(() => ({ status: 503 }))
  const { id } = (await studio.create({ webhook_url: studio.receiver.url })).json()
  const { id: delivery } = await studio.deliveryOf(id, has('pending', 1))
  const redeliver = () => studio.post(`/api/v1/deliveries/${delivery}/redeliver`)
  t.equal((await redeliver()).statusCode, 202, 'the first is free, although the schedule failed')
  await studio.deliveryOf(id, has('pending', 2))
  studio.time.now += 20_000
  const early = await redeliver()
  t.match([early.statusCode, early.headers['x-svc-limit'], early.headers['retry-after']], [429, 'failed_redeliveries', '10'])
  t.match((await studio.replay(day())).json(), { count: 0 })
})

t.test('a delivery is redelivered ten times at most', async (t) => {
  const studio = await open(t)
  const { id } = (await studio.create({ webhook_url: studio.receiver.url })).json()
  const { id: delivery } = await studio.deliveryOf(id, has('delivered', 1))
  for (let n = 1; n <= 10; n++) {
    t.equal((await studio.post(`/api/v1/deliveries/${delivery}/redeliver`)).statusCode, 202)
    await studio.deliveryOf(id, has('delivered', n + 1))
  }
  const refused = await studio.post(`/api/v1/deliveries/${delivery}/redeliver`)
  t.equal(refused.statusCode, 409)
  t.equal(refused.json().error.code, 'redelivery_limit')
  t.match((await studio.replay(day())).json(), { count: 0, has_more: false })
})

t.test("another tenant's delivery and an unknown one are not found, and without a key nothing is", async (t) => {
  const studio = await open(t)
  const { id } = (await studio.create({ webhook_url: studio.receiver.url })).json()
  const { id: delivery } = await studio.deliveryOf(id, has('delivered', 1))
  const { raw } = await studio.key(studio.subscription, { tenant: 'globex' })
  const refused = await studio.app.inject({ method: 'POST', url: `/api/v1/deliveries/${delivery}/redeliver`, headers: bearer(raw) })
  t.equal(refused.statusCode, 404)
  t.equal((await studio.post('/api/v1/deliveries/unknown/redeliver')).statusCode, 404)
  t.match((await studio.replay(day(), raw)).json(), { count: 0, has_more: false })
  for (const path of [`${delivery}/redeliver`, 'replay']) t.equal((await studio.app.inject({ method: 'POST', url: `/api/v1/deliveries/${path}`, payload: {} })).statusCode, 401)
  t.equal(studio.receiver.received.length, 1)
})

const day = () => ({ since: new Date(START - 1000).toISOString(), until: new Date(START + 86_400_000).toISOString() })

t.test('a replay sends what a time range holds once more, chosen by event and status', async (t) => {
  const studio = await open(t)
  const ids: string[] = []
  for (const _ of [1, 2, 3]) {
    const { id } = (await studio.create({ webhook_url: studio.receiver.url })).json()
    await studio.deliveryOf(id, has('delivered', 1))
    ids.push(id)
    studio.time.now += 60_000
  }
  const range = { since: new Date(START + 60_000).toISOString(), until: new Date(START + 120_001).toISOString() }
  t.match((await studio.replay({ ...range, status: 'failed' })).json(), { count: 0 })
  t.match((await studio.replay({ ...range, event: 'task.refunded' })).json(), { count: 0 })
  const replayed = await studio.replay({ ...range, event: 'task.completed', status: 'delivered' })
  t.equal(replayed.statusCode, 202)
  t.same(replayed.json(), { object: 'replay', count: 2, has_more: false, next_cursor: null })
  for (const id of ids.slice(1)) await studio.deliveryOf(id, has('delivered', 2))
  t.equal((await studio.deliveryOf(ids[0] ?? '', () => true)).attempts.length, 1)
})

t.test('a replay of more than one page continues with its cursor', async (t) => {
  const studio = await open(t)
  const before = START - 1000
  const made = Array.from({ length: 501 }, (_, n) => {
    const taskId = `00000000-0000-7000-8000-${String(n).padStart(12, '0')}`
    const attempts = [{ number: 1, at: before, durationMs: 1, statusCode: 500, error: 'status', responsePrefix: '' }]
    return { id: `${taskId}.task.completed`, taskId, tenant: 'acme', keyVersionId: studio.keyVersionId, event: 'task.completed', url: studio.receiver.url, host: 'x', body: '{}', state: 'failed', nextAttemptAt: null, epoch: 1, leaseUntil: null, attempts, createdAt: before } as const
  })
  const { id } = (await studio.create()).json()
  await studio.until(id, ({ status }) => status === 'completed')
  await studio.store.relay(id, made.map((delivery) => ({ ...delivery, attempts: [...delivery.attempts] })), [])
  const range = { ...day(), status: 'failed' }
  const first = (await studio.replay(range)).json()
  t.match(first, { count: 500, has_more: true })
  t.same((await studio.replay({ ...range, cursor: first.next_cursor })).json(), { object: 'replay', count: 1, has_more: false, next_cursor: null })
  await studio.receiver.arrived(501)
})

t.test('every faulty field of a replay is named', async (t) => {
  const studio = await open(t)
  const whole = day()
  const faults: [object, string][] = [
    [{}, '/since'],
    [{ since: whole.since }, '/until'],
    [{ ...whole, since: 'yesterday' }, '/since'],
    [{ ...whole, until: whole.since }, '/until'],
    [{ since: '2026-01-01T00:00:00Z', until: '2026-02-02T00:00:01Z' }, '/until'],
    [{ ...whole, status: 'waiting' }, '/status'],
    [{ ...whole, event: 'task.created' }, '/event'],
    [{ ...whole, cursor: 'x' }, '/cursor'],
    [{ ...whole, limit: 5 }, '/limit'],
  ]
  for (const [body, path] of faults) {
    const refused = await studio.replay(body)
    t.equal(refused.statusCode, 400, path)
    t.match(refused.json(), { error: { code: 'invalid_request' }, errors: [{ path }] })
  }
})
