/** What a plan and a key may have, and where the money of tasks is counted. */
import t from 'tap'
import { entriesOf } from '../../src/domain/subscription/holds.ts'
import { bearer, MEDIA } from './gateway.ts'
import { isFinal, openStudio } from './studio.ts'

const usage = async ({ get }: Awaited<ReturnType<typeof openStudio>>) => (await get('/api/v1/usage')).json() as Record<string, string>

t.test('a plan queues up to its limit of open tasks, and its answers have the headers of its rate', async (t) => {
  const studio = await openStudio(t, { media: { maxQueuedTasks: 2 }, requestsPerMinute: 60, loops: false })
  const first = await studio.create()
  t.equal(first.headers['ratelimit-policy'], '"plan";q=60;w=60;burst=10')
  t.equal(first.headers.ratelimit, '"plan";r=9;t=1')
  await studio.create()
  const full = await studio.create()
  t.match([full.statusCode, full.headers['x-svc-limit']], [429, 'plan_queue'])
  t.ok(Number(full.headers['retry-after']) > 0)
  t.match(full.json(), { error: { code: 'queue_full' } })
})

t.test('a creation above the rate of the plan is told the rate', async (t) => {
  const studio = await openStudio(t, { requestsPerMinute: 60, loops: false })
  for (let i = 0; i < 10; i++) t.equal((await studio.create()).statusCode, 202)
  const refused = await studio.create()
  t.match([refused.statusCode, refused.headers], [429, { 'x-svc-limit': 'plan_rate', 'retry-after': '1', 'ratelimit-policy': '"plan";q=60;w=60;burst=10', ratelimit: '"plan";r=0;t=10' }])
})

t.test('no more tasks of a plan run at once than it allows; the others wait in order', async (t) => {
  const studio = await openStudio(t, { media: { maxConcurrentTasks: 2 } })
  studio.engine.next('hang', 'hang', 'hang')
  const ids = []
  for (let i = 0; i < 3; i++) ids.push((await studio.create()).json().id)
  await studio.engine.begun(2)
  t.match(await studio.until(ids[2], ({ queue_position: position }) => position === 1), { status: 'queued' })
  t.equal(studio.engine.runs.length, 2)
  studio.engine.release()
  await studio.engine.begun(3)
  studio.engine.release()
  for (const id of ids) t.match(await studio.until(id, isFinal), { status: 'completed' })
})

t.test('a key that moves in the midst of a creation creates on its new plan, by its prices and its money', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const other = await studio.plan('studio2', { product: 'Media', media: { ...MEDIA, prices: [{ kind: 'image', amount: '0.07', per: 'Job' }] } })
  const { store } = studio
  const { createTask } = store
  store.createTask = async (task) => {
    store.createTask = createTask
    await store.setKey(studio.keyVersionId, { subscription: other }, [studio.subscription, other])
    for (const id of [studio.subscription, other]) await store.change(id, { op: 'keysChanged' }, studio.time.now)
    return createTask(task)
  }
  const answer = await studio.create({}, { 'idempotency-key': 'k' })
  t.match([answer.statusCode, answer.json()], [202, { status: 'queued', estimated_cost: '0.0700' }])
  t.same([...new Map(entriesOf((await store.subscription(studio.subscription))?.media?.holds)).keys()], [])
  t.same([...new Map(entriesOf((await store.subscription(other))?.media?.holds)).keys()], [answer.json().id])
  t.match((await studio.create({}, { 'idempotency-key': 'k' })).json(), { id: answer.json().id })
})

t.test('money is counted when it is held, charged and refunded, however the task ends', async (t) => {
  const studio = await openStudio(t)
  const moves = async () => {
    const found = (await studio.app.metrics.registry.getSingleMetric('tollgate_money_micro_total')?.get())?.values ?? []
    return Object.fromEntries(found.map(({ labels, value }) => [labels['move'], value]))
  }
  const run = async (...steps: Parameters<typeof studio.engine.next>) => {
    studio.engine.next(...steps)
    const { id } = (await studio.create()).json()
    return studio.until(id, isFinal)
  }
  await run('make')
  t.same(await moves(), { hold: 40_000, capture: 40_000, void: 0 })
  await run({ fail: 'provider_rejected', retryable: false })
  t.same(await moves(), { hold: 80_000, capture: 40_000, void: 40_000 })
  studio.engine.next('hang')
  const { id } = (await studio.create()).json()
  await studio.post(`/api/v1/generations/${id}/cancel`)
  t.same(await moves(), { hold: 120_000, capture: 40_000, void: 80_000 })
  await studio.create({}, { 'idempotency-key': 'k' })
  await studio.create({}, { 'idempotency-key': 'k' })
  t.match(await moves(), { hold: 160_000 }, 'a replay holds nothing')
})

t.test('a key with a share of its own sees what it burned and holds of it in the running period', async (t) => {
  const studio = await openStudio(t)
  const capped = await studio.key(studio.subscription, { cap: 90_000 })
  const headers = bearer(capped.raw)
  const share = async () => (await studio.get('/api/v1/usage', headers)).json().key
  t.same(await share(), { limit: '0.0900', available: '0.0900', held: '0.0000', burned: '0.0000' })
  const { id } = (await studio.create({}, headers)).json()
  await studio.until(id, isFinal)
  studio.engine.next('hang')
  await studio.create({}, headers)
  await studio.create()
  t.same(await share(), { limit: '0.0900', available: '0.0100', held: '0.0400', burned: '0.0400' })
  t.match((await studio.create({}, headers, '?dry_run=true')).json(), { available: '0.0100', affordable: false })
  t.notOk('key' in (await usage(studio)), 'a key without a share is not told one')
  studio.time.now += 30 * 24 * 3_600_000
  t.match(await share(), { limit: '0.0900', burned: '0.0000' }, 'the next period begins anew')
})

for (const product of ['Room', 'Media'] as const) {
  t.test(`an active ${product} plan pays for the generations and operations of its own keys, up to its allowance`, async (t) => {
    const studio = await openStudio(t, { loops: false })
    const small = await studio.plan('small', { product, media: { ...MEDIA, allowance: '0.07' } })
    const { raw } = await studio.key(small)
    const told = async () => (await studio.get('/api/v1/usage', bearer(raw))).json()
    const generate = () => studio.create({}, bearer(raw))
    const operate = () => studio.operate({ operation: 'background_remove', media_url: 'https://example.com/a.png' }, bearer(raw))
    t.equal((await generate()).statusCode, 202)
    t.equal((await operate()).statusCode, 202)
    t.match(await told(), { product, granted: '0.0700', held: '0.0600', available: '0.0100' })
    t.match((await generate()).json(), { status: 402, error: { code: 'insufficient_balance' }, required: '0.0400', available: '0.0100' })
    t.match((await operate()).json(), { status: 402, error: { code: 'insufficient_balance' }, required: '0.0200', available: '0.0100' })
    t.match(await usage(studio), { granted: '10.0000', held: '0.0000', available: '10.0000' }, 'another plan pays nothing')
    await studio.plan('small', { product, media: { ...MEDIA, allowance: '0.08' } }, 2)
    t.equal((await operate()).statusCode, 202, 'a larger allowance pays for more')
    await studio.plan('small', { product, media: MEDIA, state: 'Suspended' }, 3)
    for (const create of [generate, operate]) t.match((await create()).json(), { status: 403, error: { code: 'plan_inactive' } })
  })
}

t.test('the capabilities are what can be had now: formats, limits, the prices of the plan, and what makes it, by no name', async (t) => {
  const engines = `
engines:
  - { name: fake, type: fake }
  - { name: secret, type: preview }
routes:
  - { kind: image, engine: secret, price: { amount: "0.04", per: Job }, max: { megapixels: 4.2 } }
  - { kind: music, engine: fake, price: { amount: "0.01", per: Second }, max: { seconds: 30 } }
  - { operation: upscale, engine: secret, price: { amount: "0.02", per: Megapixel } }
  - { operation: trim, engine: fake, price: { amount: "0.005", per: Second } }
`
  const studio = await openStudio(t, { engines, media: { prices: [{ kind: 'image', amount: '0.07', per: 'Job' }] }, loops: false })
  const answer = await studio.get('/api/v1/capabilities')
  t.equal(answer.statusCode, 200)
  const { generations, operations, uploads } = answer.json()
  t.match(generations, [
    { kind: 'image', limits: { megapixels: 4.2, seconds: null }, defaults: { size: /^\d+x\d+$/ }, price: { amount: '0.0700', per: 'Job' }, engine: 'preview' },
    { kind: 'music', limits: { seconds: 30 }, price: { amount: '0.0100', per: 'Second' }, engine: 'other' },
  ])
  t.equal(generations.length, 2, 'no route makes a film')
  const expected = [
    { operation: 'trim', sources: ['video/*', 'audio/*'], price: { amount: '0.0050', per: 'Second' }, engine: 'other' },
  ]
  t.match(operations, expected)
  t.equal(operations.length, expected.length, 'the engine of the route does not enlarge')
  t.match(uploads, { bytes: Number, count: Number, total_bytes: Number })
  t.notMatch(answer.body, /secret|fake/)
})
