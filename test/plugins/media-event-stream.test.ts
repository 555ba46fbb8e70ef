/** The events of one task as a stream: history, live, resumed. */
import type { Readable } from 'node:stream'
import { mock } from 'node:test'
import t, { type Test } from 'tap'
import { FAKE_OPERATIONS } from '../fakes/engine.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { bearer } from './gateway.ts'
import { openStudio, type Studio } from './studio.ts'

type Event = { id: number; event: string; data: Record<string, unknown> }

function parse(text: string): Event[] {
  return text.split('\n\n').filter((block) => block.startsWith('id:')).map((block) => {
    const fields = Object.fromEntries(block.split('\n').map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)]))
    return { id: Number(fields['id']), event: fields['event'] ?? '', data: JSON.parse(fields['data'] ?? '') }
  })
}

const named = (events: Event[]) => events.map(({ event }) => event)
const url = (id: string, path = 'generations') => `/api/v1/${path}/${id}/events`

/** The events of a stream that ends. */
async function whole(studio: Studio, id: string, after?: number | string, path?: string): Promise<Event[]> {
  const answer = await studio.get(url(id, path), after === undefined ? {} : { 'last-event-id': String(after) })
  return answer.statusCode === 204 ? [] : parse(answer.body)
}

/** A stream that is read while it goes on. */
async function follow(t: Test, studio: Studio, id: string) {
  const answer = await studio.app.inject({ url: url(id), headers: bearer(studio.raw), payloadAsStream: true })
  const body = answer.stream() as Readable
  let text = ''
  let changed = Promise.withResolvers<void>()
  body.on('data', (chunk) => {
    text += String(chunk)
    changed.resolve()
    changed = Promise.withResolvers<void>()
  })
  const ended = new Promise<void>((resolve) => body.once('close', () => resolve()))
  t.teardown(() => body.destroy())
  return {
    answer,
    text: () => text,
    events: () => parse(text),
    ended,
    async until(name: string): Promise<Event[]> {
      while (!named(parse(text)).includes(name)) await changed.promise
      return parse(text)
    },
  }
}

const COMPLETED = ['task.created', 'balance.held', 'task.queued', 'task.processing', 'balance.burned', 'task.completed']

t.test('a stream sends past and new events of the task, and ends with it', async (t) => {
  const studio = await openStudio(t)
  const id = await studio.hanging()
  const stream = await follow(t, studio, id)
  t.equal(stream.answer.statusCode, 200)
  t.match(stream.answer.headers, { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache', 'x-accel-buffering': 'no' })
  await stream.until('task.processing')
  studio.engine.release()
  await stream.ended
  const events = stream.events()
  t.same(named(events), COMPLETED)
  t.same(events.map(({ id: sequence }) => sequence), events.map(({ id: sequence }) => sequence).toSorted((a, b) => a - b))
  t.match(events[0]?.data, { task_id: id, object: 'generation', kind: 'image' })
  t.match(events[1]?.data, { task_id: id, amount: '0.0400' })
  t.match(events[4]?.data, { task_id: id, amount: '0.0400' })
  const [logged] = (await studio.get('/api/v1/events')).json().data
  t.same(events[5]?.data, logged.data, 'the data of the webhook')
  t.same(await whole(studio, id), events, 'the history is the same later, with the same numbers')
})

t.test('a failed task sends its refund, a canceled one its cancellation, and an operation its name', async (t) => {
  const studio = await openStudio(t, { media: { attempts: 1 } })
  studio.engine.next({ fail: 'provider_error', retryable: false })
  const { id } = (await studio.create()).json()
  await studio.until(id, ({ status }) => status === 'failed')
  const failed = await whole(studio, id)
  t.same(named(failed).slice(4), ['balance.returned', 'task.failed', 'task.refunded'])
  t.match(failed[5]?.data, { status: 'failed', error: { code: 'provider_error' }, refund_amount: '0.0400' })
  t.same(failed[6]?.data, { task_id: id, refund_amount: '0.0400' })

  studio.engine.next('hang')
  const canceled = (await studio.create()).json().id
  await studio.engine.begun(2)
  await studio.post(`/api/v1/generations/${canceled}/cancel`)
  const events = await whole(studio, canceled)
  t.same(named(events).slice(4), ['balance.returned', 'task.canceled'])
  t.match(events[5]?.data, { task_id: canceled, status: 'canceled', refund_amount: '0.0400' })
})

t.test('a canceled task that is charged says how much', async (t) => {
  const engines = FAKE_OPERATIONS.replace('kind: image, engine: fake,', 'kind: image, engine: fake, cancelPercent: 30,')
  const studio = await openStudio(t, { engines })
  const id = await studio.hanging()
  await studio.post(`/api/v1/generations/${id}/cancel`)
  const events = await whole(studio, id)
  t.same(named(events).slice(4), ['balance.burned', 'balance.returned', 'task.canceled'])
  t.match(events.slice(4).map(({ data }) => data['amount'] ?? data['refund_amount']), ['0.0120', '0.0280', '0.0280'])
})

t.test('progress is sent as it grows, with ids that grow with it', async (t) => {
  const studio = await openStudio(t, { env: { TASK_LEASE_SECONDS: '1' } })
  studio.engine.next({ job: 'job-1', afterwards: 'hang' })
  const { id } = (await studio.create()).json()
  await studio.engine.begun(1)
  const stream = await follow(t, studio, id)
  await stream.until('task.processing')
  const [task] = await studio.store.tasks('acme', { object: 'generation', kind: null, status: null, createdAfter: null, createdBefore: null }, null, 1)
  for (const progress of [10, 55]) {
    await studio.store.renewTask(id, task?.epoch ?? 0, progress, studio.time.now + 60_000)
    while (!stream.events().some(({ data }) => data['progress'] === progress)) await new Promise((resolve) => setTimeout(resolve, 5))
  }
  const told = stream.events().filter(({ event }) => event === 'task.progress')
  t.same(told.map(({ data }) => data['progress']), [10, 55])
  t.ok((told[0]?.id ?? 0) < (told[1]?.id ?? 0))
  studio.engine.release()
  await stream.until('task.completed')
})

t.test('Last-Event-ID resumes after any event, and 204 ends the reconnects of a task that has ended', async (t) => {
  const studio = await openStudio(t)
  const { id } = (await studio.create()).json()
  await studio.until(id, ({ status }) => status === 'completed')
  const events = await whole(studio, id)
  for (const [n, { id: sequence }] of events.entries()) t.same(await whole(studio, id, sequence), events.slice(n + 1))
  t.equal((await studio.get(url(id), { 'last-event-id': String(events.at(-1)?.id) })).statusCode, 204)
  t.same(await whole(studio, id, ''), events)
  for (const bad of ['x', '-1', '1.5', '1234567890']) {
    const refused = await studio.get(url(id), { 'last-event-id': bad })
    t.equal(refused.statusCode, 400)
    t.match(refused.json(), { errors: [{ path: '/Last-Event-ID' }] })
  }
})

t.test('webhook attempts are sent too, each once, whichever delivery ends first', async (t) => {
  const receiver = await openReceiver(t)
  const studio = await openStudio(t, { media: { attempts: 1 } })
  studio.engine.next({ fail: 'provider_error', retryable: false })
  receiver.next({ status: 500 })
  const { id } = (await studio.create({ webhook_url: receiver.url })).json()
  const attempts = async () => (await studio.get(`/api/v1/generations/${id}/deliveries`)).json().data.flatMap(({ attempts: made }: { attempts: object[] }) => made).length
  const made = async (count: number) => {
    while ((await attempts()) < count) await new Promise((resolve) => setTimeout(resolve, 5))
  }
  await made(2)
  const first = (await whole(studio, id)).slice(7)
  t.match(first, [
    { event: 'delivery.attempted', data: { delivery_id: `${id}.task.failed`, number: 1, status_code: 500, redelivery: false } },
    { event: 'delivery.attempted', data: { delivery_id: `${id}.task.refunded`, number: 1, status_code: 204 } },
  ])
  studio.time.now += 60_000
  await made(3)
  const later = await whole(studio, id, first[1]?.id)
  t.match(later, [{ event: 'delivery.attempted', data: { event: 'task.failed', number: 2, status_code: 204 } }])
  t.same(await whole(studio, id, first[0]?.id), [first[1], ...later])
  t.same(await whole(studio, id, later[0]?.id), [])
})

t.test("another tenant's task, an unknown one and one of the other collection are not found", async (t) => {
  const studio = await openStudio(t)
  const { id } = (await studio.create()).json()
  const { raw } = await studio.key(studio.subscription, { tenant: 'globex' })
  t.equal((await studio.app.inject({ url: url(id), headers: bearer(raw) })).statusCode, 404)
  t.equal((await studio.app.inject(url(id))).statusCode, 401)
  for (const other of [url(id, 'operations'), url('unknown')]) t.equal((await studio.get(other)).statusCode, 404)
  const operation = (await studio.operate({ operation: 'upscale', media_url: 'data:image/png;base64,iVBORw0KGgo=' })).json()
  t.match((await whole(studio, operation.id, undefined, 'operations'))[0]?.data, { object: 'operation', operation: 'upscale' })
})

t.test('a key has twenty streams at most; one that is left frees its place', async (t) => {
  const studio = await openStudio(t)
  const id = await studio.hanging()
  // A client that leaves is seen by its connection only.
  const address = await studio.app.listen({ port: 0, host: '127.0.0.1' })
  const open = async () => {
    const left = new AbortController()
    t.teardown(() => left.abort())
    const answer = await fetch(`${address}${url(id)}`, { headers: bearer(studio.raw), signal: left.signal })
    return { answer, leave: () => left.abort() }
  }
  const streams = await Promise.all(Array.from({ length: 20 }, open))
  t.same(new Set(streams.map(({ answer }) => answer.status)), new Set([200]))
  const refused = await studio.get(url(id))
  t.equal(refused.statusCode, 429)
  t.match(refused.json().error, { code: 'concurrency_limit' })
  t.equal(refused.headers['retry-after'], '5')
  streams[0]?.leave()
  let again = await open()
  for (; again.answer.status === 429; again = await open()) await again.answer.text()
  t.equal(again.answer.status, 200)
  studio.engine.release()
  for (const { answer } of [...streams.slice(1), again]) t.match(parse(await answer.text()).at(-1), { event: 'task.completed' })
})

t.test('a silent stream is kept alive, and ends when its key is no longer valid', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const { id } = (await studio.create()).json()
  mock.timers.enable({ apis: ['setInterval'] })
  t.teardown(() => mock.timers.reset())
  const stream = await follow(t, studio, id)
  await stream.until('task.queued')
  mock.timers.tick(15_000)
  while (!stream.text().includes(': keep-alive\n\n')) await new Promise((resolve) => setImmediate(resolve))
  await studio.store.setKey(studio.keyVersionId, { state: 'revoked' }, [])
  mock.timers.tick(15_000)
  await stream.ended
  t.same(named(stream.events()), COMPLETED.slice(0, 3))
})

t.test('streams end when the program stops', async (t) => {
  const studio = await openStudio(t)
  const id = await studio.hanging()
  const stream = await follow(t, studio, id)
  await stream.until('task.processing')
  const closed = studio.app.close()
  await stream.ended
  t.notOk(named(stream.events()).includes('task.completed'))
  studio.engine.release()
  await closed
})
