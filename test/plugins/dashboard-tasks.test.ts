/** The list of tasks of the dashboard by the state of their webhooks, and what these say. */
import { setImmediate } from 'node:timers/promises'
import t from 'tap'
import { openReceiver } from '../fakes/receiver.ts'
import { eventually } from '../flows/eventually.ts'
import { applyPlan, openRoom } from './dashboard-room.ts'

type Page = { data: { id: string; webhook: string | null }[]; has_more: boolean; next_cursor: string | null }

t.test('tasks are found by the state of their webhooks, page by page, and payloads are shown without a way into the result', async (t) => {
  const receiver = await openReceiver(t)
  const room = await openRoom(t, { env: { WEBHOOK_DELAYS_SECONDS: '0' } })
  const list = async (query: string) => (await room.send({ path: `/media/tasks?${query}` })).json() as Page
  const ids: string[] = []
  for (const status of [204, 500, 204, null, 204]) {
    if (status !== null) receiver.next({ status })
    const { id } = (await room.create(status === null ? {} : { webhook_url: receiver.url })).json()
    ids.push(id)
    if (status !== null) await eventually('the attempt', async () => ((await list('')).data.find((task) => task.id === id)?.webhook !== 'pending' ? true : null))
  }
  const [first, failed, second, , third] = ids
  const found = async (query: string) => (await list(query)).data.map(({ id }) => id)
  t.same(await found('webhook=failed'), [failed])
  t.same(await found('webhook=pending'), [])
  const page = await list('webhook=delivered&limit=2')
  t.match([page.data.map(({ id }) => id), page.has_more], [[third, second], true])
  t.same(await found(`webhook=delivered&limit=2&cursor=${page.next_cursor}`), [first])
  t.same(await found('webhook=failed&status=canceled'), [], 'beside the other filters')
  t.equal((await room.send({ path: '/media/tasks?webhook=none' })).statusCode, 400)

  let [reading, most] = [0, 0]
  const { deliveries } = room.store
  room.store.deliveries = async (id) => {
    most = Math.max(most, ++reading)
    await setImmediate()
    reading--
    return deliveries(id)
  }
  await Promise.all([found('webhook=failed'), found('webhook=failed'), found('webhook=pending')])
  t.equal(most, 4, 'one search of a session after the other')
  room.store.deliveries = deliveries

  const payloads = (await room.send({ path: `/media/tasks/${failed}/payloads` })).json()
  const bodies = receiver.received.map(({ rawBody }) => JSON.parse(rawBody.toString()))
  const sent = bodies.find(({ data }) => data.task_id === failed)
  t.match(payloads, { data: [{ id: `${failed}.task.completed`, payload: { event: 'task.completed', timestamp: sent.timestamp, data: { task_id: failed, actual_cost: sent.data.actual_cost } } }] })
  const { image_url: link } = payloads.data[0].payload.data.result
  t.match(link, /&sig=…$/)
  t.equal(link.replace(/sig=.*/, ''), sent.data.result.image_url.replace(/sig=.*/, ''))

  await applyPlan(room, 'other/studio', 'Media', (await room.store.subscription(room.subscription))!.terms)
  t.equal((await room.send({ path: `/media/tasks/${failed}/payloads`, tenant: 'other' })).statusCode, 404)
  t.same((await room.send({ path: '/media/tasks?webhook=failed', tenant: 'other' })).json().data, [])
})
