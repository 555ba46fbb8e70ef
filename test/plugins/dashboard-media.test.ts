/** The Media API's endpoints behind a session of the dashboard. */
import t from 'tap'
import { WAITS_PER_CALLER } from '../../plugins/task-watch/task-watch.ts'
import { entriesOf } from '../../src/domain/subscription/holds.ts'
import { verifyStore } from '../../src/verify/verify.ts'
import { applyPlan, openRoom, type Room, type Sent } from './dashboard-room.ts'
import { CODING, MEDIA } from './gateway.ts'
import { isFinal } from './studio.ts'

const impossible = (): never => {
  throw new Error('there is no such record')
}

const IMAGE = { kind: 'image', prompt: 'a lighthouse' }
const create = (room: Room, body: object = {}, query = '', more: Partial<Sent> = {}) => room.send({ method: 'POST', path: `/media/generations${query}`, body: { ...IMAGE, ...body }, ...more })

async function violations({ store, time }: Room): Promise<string[]> {
  return (await verifyStore(store, { now: time.now, keptSince: 0, eventsKeptSince: 0 })).violations
}

t.test('a session creates, reads, lists and cancels tasks as a key does, pays by its plan, and leaves the books in order', async (t) => {
  const room = await openRoom(t)
  const made = await create(room)
  t.equal(made.statusCode, 202)
  t.match(made.headers, { location: `/dashboard/api/media/generations/${made.json().id}`, 'cache-control': 'no-store', ratelimit: /r=/ })
  const done = await room.until(made.json().id, isFinal)
  t.match(done, { status: 'completed', actual_cost: '0.0400' })
  const read = await room.send({ path: `/media/generations/${made.json().id}` })
  t.same(read.json(), done, 'a key of the tenant reads the same record')
  t.equal(read.headers['cache-control'], 'no-store')
  t.same((await room.send({ path: '/media/generations' })).json().data.map(({ id }: { id: string }) => id), [made.json().id])
  room.engine.next('hang')
  const second = (await create(room)).json()
  t.match((await room.send({ method: 'POST', path: `/media/generations/${second.id}/cancel` })).json(), { status: 'canceled', refund_amount: '0.0400' })
  const account = (await room.store.subscription(room.subscription))?.media
  t.same(account?.keys, { dashboard: { period: 0, burned: 40_000 } }, 'its key id is that of no ApiKey')
  t.same(await room.store.keyVersions('dashboard'), [])
  t.same(await violations(room), [])
})

t.test('a quote needs no key, and a webhook is refused because nothing would sign it', async (t) => {
  const room = await openRoom(t, { loops: false })
  t.match((await create(room, {}, '?dry_run=true')).json(), { object: 'quote', estimated_cost: '0.0400', available: '10.0000', affordable: true })
  const refused = await create(room, { webhook_url: 'http://127.0.0.1:9/hook' })
  t.match([refused.statusCode, refused.json()], [400, { error: { code: 'invalid_request' }, errors: [{ path: '/webhook_url', code: 'not_allowed' }] }])
  t.match(refused.headers['content-type'], 'application/problem+json')
  t.same((await room.send({ path: '/media/generations' })).json().data, [])
})

t.test('a plan that is not active refuses before the body is checked; what it made stays readable', async (t) => {
  const room = await openRoom(t)
  const { id } = (await create(room)).json()
  await room.until(id, isFinal)
  await room.plan('studio', { product: 'Media', media: MEDIA, state: 'Suspended' }, 2)
  const refused = await create(room, { kind: 'nothing' })
  t.match([refused.statusCode, refused.json()], [403, { error: { code: 'plan_inactive' } }])
  t.match((await room.send({ path: `/media/generations/${id}` })).json(), { status: 'completed' })
})

t.test('of several plans the request names the one that pays', async (t) => {
  const room = await openRoom(t, { loops: false })
  const other = await room.plan('room', { product: 'Room', media: { ...MEDIA, prices: [{ kind: 'image', amount: '0.07', per: 'Job' }] } })
  const unnamed = await create(room)
  t.match([unnamed.statusCode, unnamed.json().errors], [400, [{ path: '/plan', code: 'required', message: /room or studio/ }]])
  const made = await create(room, {}, '?plan=room')
  t.match([made.statusCode, made.json()], [202, { estimated_cost: '0.0700' }])
  t.same([...entriesOf((await room.store.subscription(other))?.media?.holds)].map(([id]) => id), [made.json().id])
  t.equal((await create(room, {}, '?plan=unknown')).statusCode, 400)
  await room.plan('room', { product: 'Room', media: MEDIA, state: 'Suspended' }, 2)
  t.equal((await create(room)).statusCode, 202, 'the only active one pays without being named')
  t.match((await create(room, {}, '?plan=room')).json(), { error: { code: 'plan_inactive' } })
  t.equal((await room.create({}, {}, '?plan=room')).statusCode, 400, 'a key names no plan')
})

t.test('a tenant whose only plan is Coding finds the AI Room locked', async (t) => {
  const room = await openRoom(t, { loops: false })
  const { terms } = (await room.store.subscription(await room.plan('coder', { product: 'Coding', coding: CODING }))) ?? impossible()
  await applyPlan(room, 'lone/coder', 'Coding', terms)
  const codingOnly = { ...room, send: (request: Sent) => room.send({ tenant: 'lone', ...request }) }
  for (const answer of [await create(codingOnly), await codingOnly.send({ path: '/media/generations' }), await codingOnly.send({ path: '/media/kinds' }), await codingOnly.send({ method: 'POST', path: '/media/uploads', body: Buffer.from('x') })]) {
    t.match([answer.statusCode, answer.json()], [403, { error: { code: 'plan_not_allowed', message: /AI Room/ } }])
  }
})

t.test('keys that change during a creation do not stop a session, whose rights are not those of a key', async (t) => {
  const room = await openRoom(t, { loops: false })
  const { store } = room
  const { createTask } = store
  store.createTask = async (task) => {
    store.createTask = createTask
    await store.change(room.subscription, { op: 'keysChanged' }, room.time.now)
    return createTask(task)
  }
  t.equal((await create(room)).statusCode, 202)
  await store.setKey(room.keyVersionId, { state: 'revoked' }, [room.subscription])
  await store.change(room.subscription, { op: 'keysChanged' }, room.time.now)
  t.equal((await create(room)).statusCode, 202)
  t.same(await violations(room), [])
})

t.test("the plan's rate and queue hold for sessions and keys together", async (t) => {
  const room = await openRoom(t, { media: { maxQueuedTasks: 2 }, requestsPerMinute: 60, loops: false })
  await room.create()
  await create(room)
  t.match((await create(room)).json(), { error: { code: 'queue_full' } })
  const many = await openRoom(t, { requestsPerMinute: 1, loops: false })
  const answers = []
  for (let i = 0; i < 12; i++) answers.push(await create(many))
  t.ok(answers.some((answer) => answer.statusCode === 429 && answer.json().error.code === 'rate_limited' && Number(answer.headers['retry-after']) > 0))
})

t.test('waits are bounded for each session: above the bound the answer comes at once, in another session it still waits', async (t) => {
  const room = await openRoom(t)
  room.engine.next('hang')
  const { id } = (await create(room)).json()
  const again = { headers: { prefer: 'wait=60', 'idempotency-key': 'k' } }
  room.engine.next('hang')
  const waiting = Array.from({ length: WAITS_PER_CALLER }, () => create(room, {}, '', again))
  await room.engine.begun(2)
  const refused = await create(room, {}, '', again)
  t.equal(refused.headers['preference-applied'], undefined)
  const other = create(room, {}, '', { ...again, session: 'two' })
  room.engine.release()
  t.ok((await other).headers['preference-applied'])
  t.ok((await Promise.all(waiting)).every((answer) => answer.statusCode === 200))
  await room.until(id, isFinal)
})

t.test("a second tenant sees nothing of the first's tasks", async (t) => {
  const room = await openRoom(t)
  const { id } = (await create(room)).json()
  await room.until(id, isFinal)
  const { terms } = (await room.store.subscription(room.subscription)) ?? impossible()
  await applyPlan(room, 'other/studio', 'Media', terms)
  t.equal((await room.send({ path: `/media/generations/${id}`, tenant: 'other' })).statusCode, 404)
  t.equal((await room.send({ path: `/media/generations/${id}/events`, tenant: 'other' })).statusCode, 404)
  t.equal((await room.send({ method: 'POST', path: `/media/generations/${id}/cancel`, tenant: 'other' })).statusCode, 404)
  t.same((await room.send({ path: '/media/generations', tenant: 'other' })).json().data, [])
  t.same((await room.send({ path: '/media/events', tenant: 'other' })).json().data, [])
})

t.test('an event stream sends a session every event of a task', async (t) => {
  const room = await openRoom(t)
  const { id } = (await create(room)).json()
  const stream = await room.send({ path: `/media/generations/${id}/events` })
  t.match(stream.headers['content-type'], 'text/event-stream')
  for (const name of ['task.created', 'balance.held', 'task.completed', 'balance.burned']) t.match(stream.body, `event: ${name}`)
})

t.test('the kinds are those that engines offer, with limits, and with the prices of each plan', async (t) => {
  const room = await openRoom(t, { media: { prices: [{ kind: 'image', amount: '0.07', per: 'Job' }] }, loops: false })
  const { data, prices } = (await room.send({ path: '/media/kinds' })).json()
  t.same(data.map(({ name }: { name: string }) => name), ['image', 'video', 'music', 'background_remove', 'upscale', 'ai_edit', 'inpaint', 'trim', 'merge'])
  t.match(data[0], { object: 'generation', available: true, reason: null, formats: ['png'], max: { seconds: null }, defaults: { size: /x/ } })
  t.match(prices.find(({ kind }: { kind: string }) => kind === 'image'), { plan: 'studio', amount: '0.0700', per: 'Job' })
  const off = await openRoom(t, { engines: 'engines:\n  - { name: fake, type: fake }\nroutes:\n  - { kind: image, engine: fake, price: { amount: "0.04", per: Job } }\n', loops: false })
  const upscale = (await off.send({ path: '/media/kinds' })).json().data.find(({ name }: { name: string }) => name === 'upscale')
  t.match(upscale, { name: 'upscale', object: 'operation', available: false, reason: 'This service does not offer it.' })
  t.match(upscale, { reads: 'image', fields: { scale: { enum: [2, 3, 4] } }, required: ['media_url'], values: { scale: 2 } }, 'the form is that of its own file')
  t.notOk(['formats', 'max', 'engine'].some((member) => member in upscale))
})
