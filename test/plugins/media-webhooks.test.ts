/** What is announced of a task: when, how often, and signed by what. */
import t, { type Test } from 'tap'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openSources } from '../contracts/operations/sources.ts'
import { MADE } from '../fakes/engine.ts'
import { openReceiver, verifies, verifiesStandard, type Receiver } from '../fakes/receiver.ts'
import { dataFieldsOf } from '../specification/statements.ts'
import { isFinal, openStudio, type Studio, type StudioOptions } from './studio.ts'

/** A studio and a receiver of its webhooks. */
async function openBoth(t: Test, options: StudioOptions = {}): Promise<{ studio: Studio; receiver: Receiver }> {
  const receiver = await openReceiver(t)
  return { receiver, studio: await openStudio(t, options) }
}

type Delivery = { status: string; next_attempt_at: string | null; attempts: { at: string; duration_ms: number; status_code: number | null; error: string | null }[] }

/** The first delivery of a task, once it has `count` attempts or gets no more. */
async function attempted(studio: Studio, id: string, count: number): Promise<Delivery> {
  for (;;) {
    const [delivery] = (await studio.get(`/api/v1/generations/${id}/deliveries`)).json().data as Delivery[]
    if (delivery && (delivery.attempts.length === count || delivery.status !== 'pending')) return delivery
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

/** Milliseconds from the end of the last attempt to the next one. */
function waitMs({ next_attempt_at: next, attempts }: Delivery): number {
  const last = attempts.at(-1)
  return Date.parse(next ?? '') - Date.parse(last?.at ?? '') - (last?.duration_ms ?? 0)
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const DECIMAL = /^\d+\.\d{4,6}$/
const UTC = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

t.test('a finished task is announced: signed with the key, by the contract and by Standard Webhooks', async (t) => {
  const receiver = await openReceiver(t)
  const studio = await openStudio(t)
  const { id } = (await studio.create({ webhook_url: receiver.url })).json()
  const [call] = await receiver.arrived(1)
  const body = JSON.parse(String(call?.rawBody))
  t.same(Object.keys(body), ['event', 'timestamp', 'data'])
  t.same(Object.keys(body.data), ['task_id', 'status', 'result', 'estimated_cost', 'actual_cost', 'duration_seconds', 'created_at', 'completed_at'])
  t.match(body, { event: 'task.completed', data: { task_id: id, status: 'completed', estimated_cost: '0.0400', actual_cost: '0.0400' } })
  t.equal(call?.headers['x-svc-event'], 'task.completed')
  t.equal(call?.headers['x-svc-key-id'], studio.keyVersionId)
  if (call) {
    t.ok(await verifies(call, studio.raw))
    t.ok(await verifiesStandard(call, `whsec_${Buffer.from(studio.raw).toString('base64')}`))
  }
  const deliveries = async () => (await studio.get(`/api/v1/generations/${id}/deliveries`)).json().data
  while ((await deliveries())[0]?.status !== 'delivered') await new Promise((resolve) => setTimeout(resolve, 5))
  t.match(await deliveries(), [{ object: 'delivery', task_id: id, event: 'task.completed', status: 'delivered', attempts: [{ number: 1, status_code: 204, error: null }] }])
})

t.test('a delivery that fails is made again after 30 s, 2 min, 10 min and 1 h, and then no more', async (t) => {
  const { studio, receiver } = await openBoth(t)
  for (let i = 0; i < 5; i++) receiver.next({ status: 503 })
  const { id } = (await studio.create({ webhook_url: receiver.url })).json()
  for (const [i, seconds] of [30, 120, 600, 3600].entries()) {
    const delivery = await attempted(studio, id, i + 1)
    t.equal(delivery.status, 'pending')
    const ms = waitMs(delivery)
    t.ok(ms >= seconds * 1000 && ms <= seconds * 1050, `${ms} ms before attempt ${i + 2}`)
    studio.time.now = Date.parse(delivery.next_attempt_at ?? '')
  }
  t.match(await attempted(studio, id, 5), { status: 'failed', next_attempt_at: null })
})

t.test('a delivered task.completed has every field of section 6.2, and its image_url serves the image', async (t) => {
  const { studio, receiver } = await openBoth(t)
  const { id } = (await studio.create({ webhook_url: receiver.url })).json()
  const [call] = await receiver.arrived(1)
  const { event, timestamp, data } = JSON.parse(String(call?.rawBody))
  t.same([event, Object.keys(data)], ['task.completed', dataFieldsOf('task.completed')])
  t.match({ timestamp, ...data }, {
    timestamp: UTC, task_id: UUID, status: 'completed', result: { image_url: /^http/ }, estimated_cost: DECIMAL, actual_cost: DECIMAL, duration_seconds: Number, created_at: UTC, completed_at: UTC,
  })
  t.ok(Number.isInteger(data.duration_seconds))
  const { result, estimated_cost, actual_cost, duration_seconds, created_at, completed_at } = (await studio.get(`/api/v1/generations/${id}`)).json()
  t.same(data, { task_id: id, status: 'completed', result, estimated_cost, actual_cost, duration_seconds, created_at, completed_at })
  const link = new URL(data.result.image_url)
  const file = await studio.app.inject({ url: link.pathname + link.search })
  t.same([file.statusCode, file.rawPayload], [200, MADE])
})

t.test('a failed task is announced by task.failed, and by task.refunded once that had its first attempt, with every field of section 6.2', async (t) => {
  const { studio, receiver } = await openBoth(t, { media: { attempts: 1 } })
  studio.engine.next({ fail: 'provider_error', retryable: true })
  receiver.next({ status: 500 })
  const { id } = (await studio.create({ webhook_url: receiver.url })).json()
  const [failed, refunded] = (await receiver.arrived(2)).map(({ rawBody }) => JSON.parse(String(rawBody)))
  t.same([failed.event, Object.keys(failed.data)], ['task.failed', dataFieldsOf('task.failed')])
  t.match(failed, {
    timestamp: UTC,
    data: { task_id: id, status: 'failed', error: { code: 'provider_error', message: /\w/ }, estimated_cost: '0.0400', refund_amount: '0.0400', attempts: 1, created_at: UTC, failed_at: UTC },
  })
  t.same(Object.keys(failed.data.error), ['code', 'message'])
  t.same([refunded.event, Object.keys(refunded.data)], ['task.refunded', dataFieldsOf('task.refunded')])
  t.match(refunded, { timestamp: UTC, data: { task_id: id, refund_amount: '0.0400', new_balance: '10.0000' } })
})

t.test('a task becomes failed, and task.failed is sent, only after all its retries', async (t) => {
  const { studio, receiver } = await openBoth(t, { media: { attempts: 3 } })
  const failure = { fail: 'provider_error', retryable: true } as const
  studio.engine.next(failure, failure, failure)
  const { id } = (await studio.create({ webhook_url: receiver.url })).json()
  for (const attempts of [1, 2]) {
    await studio.engine.begun(attempts)
    t.match(await studio.until(id, (record) => record['attempts'] === attempts), { status: 'processing', error: null, refund_amount: null })
    t.match((await studio.get('/api/v1/usage')).json(), { held: '0.0400' })
    t.same((await studio.get(`/api/v1/generations/${id}/deliveries`)).json().data, [])
    studio.time.now += 60_000
  }
  t.match(await studio.until(id, isFinal), { status: 'failed', attempts: 3, refund_amount: '0.0400' })
  const [failed] = await receiver.arrived(2)
  t.match(JSON.parse(String(failed?.rawBody)), { event: 'task.failed', data: { task_id: id, attempts: 3 } })
  t.match((await studio.get('/api/v1/usage')).json(), { available: '10.0000', held: '0.0000' })
  t.equal(studio.engine.runs.length, 3)
})

t.test('an event is a POST of the envelope to any path of webhook_url, with the headers of section 6.3', async (t) => {
  const { studio, receiver } = await openBoth(t)
  for (const [at, path] of ['/', '/hooks/media', '/a%20b/%C3%BC;x=1?task=7&task=8'].entries()) {
    await studio.create({ webhook_url: `${receiver.url}${path}` })
    const call = (await receiver.arrived(at + 1))[at]
    t.match(call, { method: 'POST', path, headers: { 'content-type': 'application/json', 'x-svc-event': 'task.completed', 'x-svc-signature': /^sha256=[0-9a-f]{64}$/ } })
    t.same(Object.keys(JSON.parse(String(call?.rawBody))), ['event', 'timestamp', 'data'])
    if (call) t.ok(await verifies(call, studio.raw))
  }
})

t.test('an operation sends the webhooks of a generation', async (t) => {
  const { studio, receiver } = await openBoth(t, { media: { attempts: 1 } })
  const { urls } = await openSources(t)
  const operate = async () => (await studio.operate({ operation: 'background_remove', media_url: urls.image, webhook_url: receiver.url })).json()
  const made = await operate()
  const [completed] = (await receiver.arrived(1)).map(({ rawBody }) => JSON.parse(String(rawBody)))
  t.match(completed, { event: 'task.completed', data: { task_id: made.id, status: 'completed', result: { image_url: String } } })
  studio.engine.next({ fail: 'provider_error', retryable: false })
  const { id } = await operate()
  const [, failed, refunded] = (await receiver.arrived(3)).map(({ rawBody }) => JSON.parse(String(rawBody)))
  t.match(failed, { event: 'task.failed', data: { task_id: id, error: { code: 'provider_error' } } })
  t.match(refunded, { event: 'task.refunded', data: { task_id: id } })
  for (const { event, data } of [completed, failed, refunded]) t.same(Object.keys(data), dataFieldsOf(event))
})

t.test('a task without webhook_url sends no webhook, and no default webhook URL can be set', async (t) => {
  const { studio, receiver } = await openBoth(t)
  const { id } = (await studio.create()).json()
  t.match(await studio.until(id, isFinal), { status: 'completed', webhook_url: null })
  t.same((await studio.get(`/api/v1/generations/${id}/deliveries`)).json().data, [])
  t.match((await studio.create({ default_webhook_url: receiver.url })).json(), { error: { code: 'invalid_request' }, errors: [{ path: '/default_webhook_url' }] })
  for (const path of ['settings', 'agent', 'agents/settings', 'webhooks']) t.equal((await studio.get(`/api/v1/${path}`)).statusCode, 404, path)
  for (const crd of ['plan', 'apikey']) t.notMatch(readFileSync(join(import.meta.dirname, `../../crds/${crd}.yaml`), 'utf8'), /^ +\w*(webhook|callback)\w*:$/im, `the manifest of ${crd}`)
  t.same(receiver.received, [])
})

t.test('a receiver that times out is retried after 30 s', async (t) => {
  const { studio, receiver } = await openBoth(t, { env: { WEBHOOK_TIMEOUT_SECONDS: '1' } })
  receiver.next('never')
  const { id } = (await studio.create({ webhook_url: receiver.url })).json()
  const delivery = await attempted(studio, id, 1)
  t.match(delivery, { status: 'pending', attempts: [{ status_code: null, error: 'timeout' }] })
  t.ok(waitMs(delivery) >= 30_000)
  studio.time.now = Date.parse(delivery.next_attempt_at ?? '')
  t.match(await attempted(studio, id, 2), { status: 'delivered' })
})

t.test('a receiver has 30 seconds to answer', async (t) => {
  const { studio, receiver } = await openBoth(t)
  const { egress } = studio.app
  const { request } = egress
  const deadlines: number[] = []
  egress.request = (options) => (deadlines.push(options.deadlineMs), request(options))
  await studio.create({ webhook_url: receiver.url })
  await receiver.arrived(1)
  t.same(deadlines, [30_000])
})

t.test('200, 201, 202 and 204 complete a delivery; a retry sends the same bytes with the same task_id', async (t) => {
  const { studio, receiver } = await openBoth(t)
  for (const status of [200, 201, 202, 204]) {
    receiver.next({ status })
    const { id } = (await studio.create({ webhook_url: receiver.url })).json()
    t.match(await attempted(studio, id, 1), { status: 'delivered', next_attempt_at: null, attempts: [{ status_code: status, error: null }] })
  }
  receiver.next({ status: 500 })
  const { id } = (await studio.create({ webhook_url: receiver.url })).json()
  studio.time.now = Date.parse((await attempted(studio, id, 1)).next_attempt_at ?? '')
  await attempted(studio, id, 2)
  const [first, again] = receiver.received.slice(4)
  t.equal(JSON.parse(String(first?.rawBody)).data.task_id, id)
  t.same(again?.rawBody, first?.rawBody)
  t.equal(receiver.received.length, 6)
})

t.test('a stop that cuts off an attempt makes it again, but not after a 2xx', async (t) => {
  const studio = await openStudio(t)
  const statuses = [null, 503, 200]
  studio.app.egress.request = async () => ({ outcome: 'failed', reason: 'canceled', status: statuses.shift() ?? null, durationMs: 1 })
  const { id } = (await studio.create({ webhook_url: 'https://receiver.example/hook' })).json()
  t.match(await attempted(studio, id, 1), { status: 'delivered', attempts: [{ status_code: 200, error: null }] })
  t.same(statuses, [], 'cut off twice before')
})
