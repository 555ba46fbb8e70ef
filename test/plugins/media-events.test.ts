/** The tenant's event log: what it holds, and how it is followed. */
import t from 'tap'
import { openReceiver } from '../fakes/receiver.ts'
import { bearer } from './gateway.ts'
import { openStudio, type Studio } from './studio.ts'

const DAY_MS = 24 * 3_600_000

type Event = { id: string; type: string; task_id: string; created_at: string; data: Record<string, unknown> }
type Page = { object: string; data: Event[]; has_more: boolean; next_cursor: string }

async function events(studio: Studio, query = ''): Promise<Page> {
  return (await studio.get(`/api/v1/events${query}`)).json()
}

/** Creates a task, and resolves with its id once so many of its events are logged. */
async function logged(studio: Studio, count: number, body: object = {}): Promise<string> {
  const { id } = (await studio.create(body)).json()
  for (;;) {
    const { data } = await events(studio, '?limit=100')
    if (data.filter(({ task_id: task }) => task === id).length === count) return id
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

t.test('every event is logged with the data of its webhook, and without a webhook too', async (t) => {
  const receiver = await openReceiver(t)
  const studio = await openStudio(t, { media: { attempts: 1 } })
  const silent = await logged(studio, 1)
  studio.engine.next({ fail: 'provider_error', retryable: false })
  const announced = await logged(studio, 2, { webhook_url: receiver.url })
  const page = await events(studio)
  t.match(page, { object: 'list', has_more: false })
  t.same(page.data.map(({ id }) => id), [`${silent}.task.completed`, `${announced}.task.failed`, `${announced}.task.refunded`])
  t.match(page.data[0], { object: 'event', type: 'task.completed', task_id: silent, data: { task_id: silent, status: 'completed', actual_cost: '0.0400' } })
  const received = await receiver.arrived(2)
  for (const [n, call] of received.entries()) {
    const { event, timestamp, data } = JSON.parse(String(call.rawBody))
    t.same(page.data[n + 1], { id: call.headers['webhook-id'], object: 'event', type: event, task_id: announced, created_at: timestamp, data })
  }
})

t.test('a canceled task has no event', async (t) => {
  const studio = await openStudio(t)
  const id = await studio.hanging()
  t.equal((await studio.post(`/api/v1/generations/${id}/cancel`)).statusCode, 200)
  await logged(studio, 1)
  t.same((await events(studio)).data.filter(({ task_id: task }) => task === id), [])
})

t.test('pages lead through the log, and the last cursor leads to later events', async (t) => {
  const studio = await openStudio(t)
  const ids: string[] = []
  for (const _ of [1, 2, 3]) ids.push(await logged(studio, 1))
  const first = await events(studio, '?limit=2')
  t.match(first, { has_more: true, data: ids.slice(0, 2).map((id) => ({ task_id: id })) })
  const second = await events(studio, `?limit=2&cursor=${first.next_cursor}`)
  t.match(second, { has_more: false, data: [{ task_id: ids[2] }] })
  const end = await events(studio, `?cursor=${second.next_cursor}`)
  t.same(end, { object: 'list', data: [], has_more: false, next_cursor: second.next_cursor })
  const later = await logged(studio, 1)
  t.match(await events(studio, `?cursor=${end.next_cursor}`), { data: [{ task_id: later }], has_more: false })
})

t.test('events are kept for EVENT_DAYS', async (t) => {
  const studio = await openStudio(t, { env: { EVENT_DAYS: '2' } })
  await logged(studio, 1)
  const { next_cursor: cursor } = await events(studio)
  studio.time.now += 2 * DAY_MS
  t.equal((await events(studio)).data.length, 1)
  studio.time.now += 1
  t.same(await events(studio, `?cursor=${cursor}`), { object: 'list', data: [], has_more: false, next_cursor: cursor })
  t.equal((await events(studio)).data.length, 0)
})

t.test('another tenant has a log of its own, and a cursor that was not given is refused', async (t) => {
  const studio = await openStudio(t)
  await logged(studio, 1)
  const { raw } = await studio.key(studio.subscription, { tenant: 'globex' })
  const other = await studio.app.inject({ url: '/api/v1/events', headers: bearer(raw) })
  t.match(other.json(), { data: [], has_more: false })
  t.equal((await studio.app.inject('/api/v1/events')).statusCode, 401)
  for (const [query, path] of [['cursor=x', '/cursor'], ['cursor=ZXZlbnQgMDE', '/cursor'], ['limit=0', '/limit'], ['limit=101', '/limit'], ['after=1', '/after']]) {
    const refused = await studio.get(`/api/v1/events?${query}`)
    t.equal(refused.statusCode, 400, String(query))
    t.match(refused.json(), { errors: [{ path }], error: { message: new RegExp(`^The query parameter ${path?.slice(1)} `) } })
  }
})
