import t from 'tap'
import { holdOf } from '../../src/domain/subscription/holds.ts'
import { IMAGE, openSources } from '../contracts/operations/sources.ts'
import { FAKE_ENGINES, MADE } from '../fakes/engine.ts'
import { bearer, MEDIA } from './gateway.ts'
import { isFinal, openStudio, type Studio } from './studio.ts'
import { FAKE_OPERATIONS } from '../fakes/engine.ts'

const usage = async ({ get }: Awaited<ReturnType<typeof openStudio>>) => (await get('/api/v1/usage')).json() as Record<string, string>

t.test('a prompt becomes a picture: accepted, held, made, charged, and fetched by its signed link', async (t) => {
  const studio = await openStudio(t)
  studio.engine.next('hang')
  const accepted = await studio.create({ metadata: { order: '7' } })
  t.equal(accepted.statusCode, 202)
  const record = accepted.json()
  t.equal(accepted.headers.location, `/api/v1/generations/${record.id}`)
  t.match(record, {
    id: /^[0-9a-f]{8}-[0-9a-f]{4}-7/, object: 'generation', kind: 'image', prompt: 'a lighthouse', status: 'queued', progress: 0, queue_position: 1, result: null, error: null,
    estimated_cost: '0.0400', actual_cost: null, refund_amount: null, attempts: 0, duration_seconds: null, webhook_url: null, metadata: { order: '7' }, started_at: null,
    completed_at: null, failed_at: null, canceled_at: null,
  })
  await studio.engine.begun(1)
  t.match(await studio.until(record.id, ({ status }) => status === 'processing'), { queue_position: null, attempts: 1 })
  t.match(await usage(studio), { granted: '10.0000', available: '9.9600', held: '0.0400', burned: '0.0000', balance: '9.9600' })
  studio.engine.release()
  const done = await studio.until(record.id, isFinal)
  t.match(done, { status: 'completed', progress: 100, actual_cost: '0.0400', refund_amount: null, attempts: 1, result: { content_type: 'image/png', bytes: MADE.length, width: 1024 } })
  t.match(await usage(studio), { available: '9.9600', held: '0.0000', burned: '0.0400', by: [{ kind: 'image', count: 1, burned: '0.0400' }] })
  const link = new URL((done['result'] as { image_url: string }).image_url)
  const file = await studio.app.inject({ url: link.pathname + link.search })
  t.same([file.statusCode, file.rawPayload], [200, MADE])
})

t.test('a task that fails after its attempts is refunded, and its error names no provider', async (t) => {
  const studio = await openStudio(t, { media: { attempts: 1 } })
  studio.engine.next({ fail: 'provider_error', retryable: true })
  const { id } = (await studio.create()).json()
  const failed = await studio.until(id, isFinal)
  t.match(failed, { status: 'failed', error: { code: 'provider_error', message: String }, actual_cost: '0.0000', refund_amount: '0.0400', attempts: 1 })
  t.match(await usage(studio), { available: '10.0000', held: '0.0000', burned: '0.0000', by: [] })
})

t.test('a transient failure is retried, and a permanent one is not', async (t) => {
  const studio = await openStudio(t)
  studio.engine.next({ fail: 'provider_error', retryable: true }, 'make', { fail: 'provider_rejected', retryable: false })
  const { id } = (await studio.create()).json()
  await studio.engine.begun(1)
  const waiting = await studio.until(id, ({ attempts }) => attempts === 1)
  t.equal(waiting['status'], 'processing', 'what waits for its next attempt is processing to a client')
  studio.time.now += 60_000
  t.match(await studio.until(id, isFinal), { status: 'completed', attempts: 2 })
  const second = (await studio.create()).json()
  t.match(await studio.until(second.id, isFinal), { status: 'failed', attempts: 1, error: { code: 'provider_rejected' } })
})

t.test('an engine that breaks its contract is an internal error that leaks nothing', async (t) => {
  const studio = await openStudio(t, { media: { attempts: 1 } })
  studio.engine.next('throw')
  const { id } = (await studio.create()).json()
  const failed = await studio.until(id, isFinal)
  t.match(failed, { status: 'failed', error: { code: 'internal' } })
  t.notMatch(JSON.stringify(failed), /secret/)
})

t.test('the balance decides: what it does not cover is refused with both numbers, and nothing is stored', async (t) => {
  const studio = await openStudio(t, { media: { allowance: '0.05' }, loops: false })
  t.equal((await studio.create()).statusCode, 202)
  const refused = await studio.create()
  t.equal(refused.statusCode, 402)
  t.match(refused.json(), { status: 402, error: { code: 'insufficient_balance' }, required: '0.0400', available: '0.0100' })
  t.equal((await studio.get('/api/v1/generations')).json().data.length, 1)
})

t.test('fifty requests under one Idempotency-Key make one task', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const answers = await Promise.all(Array.from({ length: 50 }, () => studio.create({}, { 'idempotency-key': 'order-1' })))
  t.equal(new Set(answers.map((answer) => answer.json().id)).size, 1)
  t.equal(answers.filter(({ statusCode }) => statusCode === 202).length, 1)
  t.equal(answers.filter(({ headers }) => headers['idempotency-replayed'] === 'true').length, 49)
  t.match(await usage(studio), { held: '0.0400' })
  const quoted = await studio.create({}, { 'idempotency-key': '"order-1"' })
  t.equal(quoted.statusCode, 200, 'quoted is the same key')
  t.match((await studio.create({ prompt: 'another' }, { 'idempotency-key': 'order-1' })).json(), { status: 422, error: { code: 'idempotency_key_reused' } })
  t.equal((await studio.create({}, { 'idempotency-key': 'has space' })).statusCode, 400)
})

t.test('an Idempotency-Key with an opening quote must be a string of RFC 8941; any other is used as it is', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const send = (key: string) => studio.create({}, { 'idempotency-key': key })
  for (const key of ['"', '"order', '""', '"a"b"', '"a\\"', '"a\\b"', '"a";version=1', '"a","b"', '"a b"', `"${'x'.repeat(256)}"`]) {
    t.match((await send(key)).json(), { status: 400, error: { code: 'invalid_request', message: /^The header Idempotency-Key must be/ }, errors: [{ path: '/Idempotency-Key', code: 'format' }] }, key)
  }
  t.match(await usage(studio), { held: '0.0000' })
  const taken: [first: string, again: string][] = [['order"', 'order"'], ['a\\b', '"a\\\\b"'], ['a"b', '"a\\"b"'], [`"${'x'.repeat(255)}"`, 'x'.repeat(255)]]
  for (const [first, again] of taken) t.same([(await send(first)).statusCode, (await send(again)).statusCode], [202, 200], `${first} is ${again}`)
})

t.test('a refused request frees its Idempotency-Key', async (t) => {
  const studio = await openStudio(t, { media: { allowance: '0.01' }, loops: false })
  t.equal((await studio.create({}, { 'idempotency-key': 'k' })).statusCode, 402)
  await studio.plan('studio', { product: 'Media', media: MEDIA }, 2)
  t.equal((await studio.create({}, { 'idempotency-key': 'k' })).statusCode, 202)
})

t.test('a dry run answers the price and stores nothing', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const quote = await studio.create({ kind: 'video', duration_seconds: 6.5 }, {}, '?dry_run=true')
  t.equal(quote.statusCode, 200)
  t.match(quote.json(), { object: 'quote', kind: 'video', estimated_cost: '0.3250', available: '10.0000', affordable: true, queue_position: 1, estimated_wait_seconds: null })
  t.match((await studio.get('/api/v1/generations')).json(), { object: 'list', data: [], has_more: false, next_cursor: null })
})

t.test('a price above max_cost is refused', async (t) => {
  const studio = await openStudio(t, { loops: false })
  t.match((await studio.create({ max_cost: '0.039999' })).json(), { status: 402, required: '0.0400', error: { code: 'max_cost_exceeded' } })
  t.equal((await studio.create({ max_cost: '0.04' })).statusCode, 202)
})

t.test('every faulty field of a body is named, and nothing is created', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const rows: [object, string, string?][] = [
    [{ kind: 'sculpture' }, '/kind'],
    [{ prompt: '' }, '/prompt'],
    [{ prompt: 'x'.repeat(8001) }, '/prompt'],
    [{ prompt: 7 }, '/prompt'],
    [{ colour: 'red' }, '/colour'],
    [{ size: '12 by 12' }, '/size'],
    [{ size: '99999x99999' }, '/size'],
    [{ duration_seconds: 3 }, '/duration_seconds'],
    [{ kind: 'video', duration_seconds: 3601 }, '/duration_seconds'],
    [{ output_format: 'exe' }, '/output_format'],
    [{ max_cost: '-1' }, '/max_cost'],
    [{ max_cost: '1e3' }, '/max_cost'],
    [{ metadata: { a: 1 } }, '/metadata/a'],
    [{ metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, 'v'])) }, '/metadata'],
    [{ webhook_url: 'ftp://example.com/x' }, '/webhook_url', 'url_not_allowed'],
    [{ webhook_url: 'http://169.254.169.254/latest' }, '/webhook_url', 'url_not_allowed'],
    [{ webhook_url: 'http://[::ffff:10.0.0.1]/' }, '/webhook_url', 'url_not_allowed'],
    [{ webhook_url: 'https://user:pass@example.com/' }, '/webhook_url', 'url_not_allowed'],
  ]
  for (const [body, path, code = 'invalid_request'] of rows) {
    const answer = await studio.create(body)
    t.equal(answer.statusCode, 400, JSON.stringify(body).slice(0, 80))
    t.match(answer.json(), { error: { code }, errors: [{ path, message: String }] })
  }
  const two = (await studio.create({ prompt: '', colour: 'red' })).json()
  t.same(two.errors.map(({ path }: { path: string }) => path).sort(), ['/colour', '/prompt'])
  t.same((await studio.get('/api/v1/generations')).json().data, [])
  t.match(await usage(studio), { held: '0.0000' })
})

t.test('kind is required, and may be image, video or music', async (t) => {
  const studio = await openStudio(t, { loops: false })
  for (const kind of ['image', 'video', 'music']) t.match(await studio.create({ kind }), { statusCode: 202 }, kind)
  t.same((await studio.get('/api/v1/generations')).json().data.map(({ kind }: { kind: string }) => kind), ['music', 'video', 'image'])
  for (const kind of [undefined, null, '', 'Image', 'sculpture', 7]) {
    t.match((await studio.create({ kind })).json(), { status: 400, error: { code: 'invalid_request' }, errors: [{ path: '/kind' }] }, String(kind))
  }
  t.equal((await studio.get('/api/v1/generations')).json().data.length, 3)
})

t.test('prompt is required, and is text', async (t) => {
  const studio = await openStudio(t, { loops: false })
  for (const prompt of [undefined, null, '', 7, ['a lighthouse']]) {
    t.match((await studio.create({ prompt })).json(), { status: 400, error: { code: 'invalid_request' }, errors: [{ path: '/prompt' }] }, String(prompt))
  }
  t.same((await studio.get('/api/v1/generations')).json().data, [])
})

t.test('POST returns the record of a new task, and GET returns the same record for its identifier', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const media_url = 'https://example.com/a.png'
  const created = [
    await studio.create({ prompt: 'a lighthouse' }),
    await studio.create({ kind: 'music', prompt: 'rain' }),
    await studio.operate({ operation: 'background_remove', media_url }),
    await studio.operate({ operation: 'upscale', media_url }),
  ]
  const expected = [{ kind: 'image', prompt: 'a lighthouse' }, { kind: 'music', prompt: 'rain' }, { operation: 'background_remove', input: { media_url } }, { operation: 'upscale', input: { media_url } }]
  for (const [at, answer] of created.entries()) {
    const record = answer.json()
    t.match({ statusCode: answer.statusCode, ...record }, { statusCode: 202, object: at < 2 ? 'generation' : 'operation', ...expected[at] })
    const read = await studio.get(`/api/v1/${record.object}s/${record.id}`)
    t.same([read.statusCode, read.json()], [200, record])
  }
})

t.test('a revoked key is refused before a dry run, an idempotent replay or a fault of the body', async (t) => {
  const asks: ((studio: Studio) => ReturnType<Studio['create']>)[] = [
    (studio) => studio.create({}, {}, '?dry_run=true'),
    (studio) => studio.create({}, { 'idempotency-key': 'k' }),
    (studio) => studio.create({ colour: 'red' }),
  ]
  for (const ask of asks) {
    const studio = await openStudio(t, { loops: false })
    // From here on the key is remembered.
    await studio.create({}, { 'idempotency-key': 'k' })
    await studio.store.setKey(studio.keyVersionId, { state: 'revoked' }, [])
    await studio.store.change(studio.subscription, { op: 'keysChanged' }, studio.time.now)
    t.equal((await ask(studio)).statusCode, 401)
    t.equal((await studio.create()).statusCode, 401)
  }
})

t.test('a creation repeated with its Idempotency-Key has its place in the queue, also after its key has moved to another plan', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const other = await studio.plan('other', { product: 'Media', media: MEDIA })
  await studio.create()
  await studio.create({}, { 'idempotency-key': 'k' })
  await studio.store.setKey(studio.keyVersionId, { subscription: other }, [])
  for (const id of [studio.subscription, other]) await studio.store.change(id, { op: 'keysChanged' }, studio.time.now)
  const { statusCode, body } = await studio.create({}, { 'idempotency-key': 'k' })
  t.equal(statusCode, 200)
  t.match(JSON.parse(body), { status: 'queued', queue_position: 2 })
})

t.test('a creation reads no key that its subscription knows, and answers queue position and rate from its hold', async (t) => {
  const studio = await openStudio(t, { loops: false })
  await studio.create()
  const asked: string[] = []
  for (const verb of ['findKey', 'subscription', 'createTask', 'change', 'moveTask', 'task'] as const) {
    const { [verb]: answer } = studio.store as unknown as Record<string, (...args: unknown[]) => unknown>
    Object.assign(studio.store, { [verb]: (...args: unknown[]) => (asked.push(verb), answer?.(...args)) })
  }
  const { statusCode, headers, body } = await studio.create()
  t.equal(statusCode, 202)
  t.same(asked, ['subscription', 'createTask', 'change'])
  t.match(headers, { ratelimit: /^"plan";r=\d+;t=\d+$/ })
  t.match(JSON.parse(body), { queue_position: 2 })
})

t.test('a key that moved off a suspended plan creates on its new one at once', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const other = await studio.plan('other', { product: 'Media', media: MEDIA })
  await studio.create()
  await studio.create()
  await studio.plan('studio', { product: 'Media', media: MEDIA, state: 'Suspended' }, 2)
  await studio.store.setKey(studio.keyVersionId, { subscription: other }, [studio.subscription, other])
  for (const id of [studio.subscription, other]) await studio.store.change(id, { op: 'keysChanged' }, studio.time.now)
  t.equal((await studio.create()).statusCode, 202)
})

t.test('metadata has names of 1 to 64 characters and nothing but text', async (t) => {
  const studio = await openStudio(t, { loops: false })
  for (const metadata of [{ ['a'.repeat(65)]: 'x' }, { '': 'x' }, { ['b'.repeat(65)]: { deep: [[[]]] } }]) t.equal((await studio.create({ metadata })).statusCode, 400)
})

t.test('cancel takes no body, whatever type it is given', async (t) => {
  const studio = await openStudio(t, { loops: false })
  for (const headers of [{ 'content-type': 'application/json' }, { 'content-type': 'application/x-www-form-urlencoded', 'content-length': '0' }, { 'content-type': 'text/plain' }] as Record<string, string>[]) {
    const { id } = (await studio.create()).json()
    t.equal((await studio.post(`/api/v1/generations/${id}/cancel`, headers)).statusCode, 200, JSON.stringify(headers))
  }
})

t.test('a dry run after the end of a period counts the new one, and knows the key\'s share', async (t) => {
  const studio = await openStudio(t, { media: { allowance: '0.04' }, loops: false })
  await studio.create()
  t.match((await studio.create({}, {}, '?dry_run=true')).json(), { available: '0.0000', affordable: false })
  studio.time.now += 31 * 24 * 3_600_000
  t.match((await studio.create({}, {}, '?dry_run=true')).json(), { available: '0.0400', affordable: true })
  const small = await studio.key(studio.subscription, { cap: 30_000 })
  t.match((await studio.create({}, bearer(small.raw), '?dry_run=true')).json(), { available: '0.0300', affordable: false })
})

t.test('an operation that no engine makes is not_supported before any hold; an unknown one is invalid', async (t) => {
  const studio = await openStudio(t, { engines: FAKE_ENGINES, loops: false })
  const operate = (payload: object) => studio.app.inject({ method: 'POST', url: '/api/v1/operations', headers: bearer(studio.raw), payload })
  for (const operation of ['background_remove', 'upscale', 'ai_edit', 'inpaint', 'trim', 'merge']) {
    const urls = operation === 'merge' ? { media_urls: ['https://example.com/a.mp4', 'https://example.com/b.mp4'] } : { media_url: 'https://example.com/a.png' }
    const more = { ai_edit: { prompt: 'x' }, inpaint: { prompt: 'x', mask_url: 'https://example.com/m.png' }, trim: { start_time: 0 } }[operation] ?? {}
    t.match((await operate({ operation, ...urls, ...more })).json(), { status: 400, error: { code: 'not_supported', param: 'operation' } })
  }
  t.match((await operate({ operation: 'fold' })).json(), { status: 400, error: { code: 'invalid_request' }, errors: [{ path: '/operation' }] })
  t.match(await usage(studio), { held: '0.0000' })
})

t.test('media_url is required for every operation but merge, and is checked before not_supported', async (t) => {
  const studio = await openStudio(t, { engines: FAKE_ENGINES, loops: false })
  const operate = async (payload: object) => (await studio.app.inject({ method: 'POST', url: '/api/v1/operations', headers: bearer(studio.raw), payload })).json()
  for (const operation of ['background_remove', 'upscale', 'ai_edit', 'inpaint', 'trim']) {
    const more = { ai_edit: { prompt: 'x' }, inpaint: { prompt: 'x', mask_url: 'https://example.com/m.png' }, trim: { start_time: 0 } }[operation] ?? {}
    t.match(await operate({ operation, ...more }), { status: 400, error: { code: 'invalid_request', param: 'media_url' }, errors: [{ path: '/media_url', code: 'required', message: 'is required' }] }, operation)
  }
  for (const media_url of ['', 7, null]) t.match(await operate({ operation: 'upscale', media_url }), { error: { code: 'invalid_request' }, errors: [{ path: '/media_url' }] })
  t.match(await operate({ operation: 'merge', media_urls: ['https://example.com/a.mp4', 'https://example.com/b.mp4'] }), { error: { code: 'not_supported' } })
  t.match(await operate({ media_url: 'https://example.com/a.png' }), { error: { code: 'invalid_request' }, errors: [{ path: '/operation' }] })
  await studio.plan('studio', { product: 'Media', media: MEDIA, state: 'Suspended' }, 2)
  t.match(await operate({ operation: 'upscale' }), { status: 403, error: { code: 'plan_inactive' } }, 'the plan goes first')
})

t.test('a canceled task returns its hold at once, and stops its run', async (t) => {
  const studio = await openStudio(t)
  const id = await studio.hanging()
  const canceled = await studio.post(`/api/v1/generations/${id}/cancel`)
  t.equal(canceled.statusCode, 200)
  t.match(canceled.json(), { status: 'canceled', actual_cost: '0.0000', refund_amount: '0.0400', canceled_at: String })
  t.match(await usage(studio), { available: '10.0000', held: '0.0000' })
  t.match((await studio.post(`/api/v1/generations/${id}/cancel`)).json(), { status: 409, error: { code: 'already_final' } })
  studio.engine.release()
  await studio.create()
  await studio.engine.begun(2)
  t.match((await studio.get(`/api/v1/generations/${id}`)).json(), { status: 'canceled' }, 'the late finisher changed nothing')
})

t.test('a task that is canceled once its run has begun costs the share of its route, and one that waits costs nothing', async (t) => {
  const engines = FAKE_OPERATIONS.replace('kind: image, engine: fake,', 'kind: image, engine: fake, cancelPercent: 30,')
  const studio = await openStudio(t, { engines, media: { maxConcurrentTasks: 1 } })
  const id = await studio.hanging()
  const waiting = (await studio.create()).json()
  const cancel = async (task: string) => (await studio.post(`/api/v1/generations/${task}/cancel`)).json()
  t.match(await cancel(waiting.id), { status: 'canceled', actual_cost: '0.0000', refund_amount: '0.0400' })
  t.match(await cancel(id), { status: 'canceled', actual_cost: '0.0120', refund_amount: '0.0280' })
  t.match(await usage(studio), { available: '9.9880', held: '0.0000', burned: '0.0120' })
  studio.engine.release()
})

t.test('lists are newest first and page by cursor, by status, kind and time', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const ids: string[] = []
  for (let i = 0; i < 5; i++) ids.unshift((await studio.create({ kind: i === 0 ? 'music' : 'image' })).json().id)
  const first = (await studio.get('/api/v1/generations?limit=2')).json()
  t.same(first.data.map(({ id }: { id: string }) => id), ids.slice(0, 2))
  t.ok(first.has_more)
  const second = (await studio.get(`/api/v1/generations?limit=3&cursor=${first.next_cursor}`)).json()
  t.same(second.data.map(({ id }: { id: string }) => id), ids.slice(2))
  t.match(second, { has_more: false, next_cursor: null })
  t.equal((await studio.get('/api/v1/generations?kind=music')).json().data.length, 1)
  t.equal((await studio.get('/api/v1/generations?status=completed')).json().data.length, 0)
  t.equal((await studio.get('/api/v1/generations?status=queued&limit=100')).json().data.length, 5)
  t.equal((await studio.get('/api/v1/generations?created_after=2100-01-01T00:00:00Z')).json().data.length, 0)
  for (const query of ['limit=0', 'limit=101', 'limit=x', 'cursor=abc', 'status=odd', 'created_after=yesterday', 'colour=red']) {
    t.equal((await studio.get(`/api/v1/generations?${query}`)).statusCode, 400, query)
  }
})

t.test('another tenant\'s task, an unknown one, and one of the other collection are all not found', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const { id } = (await studio.create()).json()
  const other = await studio.key(studio.subscription, { tenant: 'globex' })
  for (const [path, key] of [[`/api/v1/generations/${id}`, other.raw], ['/api/v1/generations/nope', studio.raw], [`/api/v1/operations/${id}`, studio.raw]] as const) {
    const answer = await studio.app.inject({ url: path, headers: bearer(key) })
    t.match(answer.json(), { status: 404, error: { code: 'not_found' } })
  }
  const nowhere = await studio.get('/api/v1/nowhere')
  t.match(nowhere.headers['content-type'], /problem\+json/)
  t.match((await studio.app.inject({ method: 'DELETE', url: `/api/v1/generations/${id}`, headers: bearer(studio.raw) })).json(), { status: 405 })
})

t.test('polling is cheap with an ETag', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const { id } = (await studio.create()).json()
  const first = await studio.get(`/api/v1/generations/${id}`)
  const again = await studio.get(`/api/v1/generations/${id}`, { 'if-none-match': String(first.headers.etag) })
  t.same([again.statusCode, again.body], [304, ''])
  await studio.post(`/api/v1/generations/${id}/cancel`)
  t.equal((await studio.get(`/api/v1/generations/${id}`, { 'if-none-match': String(first.headers.etag) })).statusCode, 200)
})

t.test('Prefer: wait holds the answer until the task is final', async (t) => {
  const studio = await openStudio(t)
  const done = await studio.create({}, { prefer: 'wait=30' })
  t.same([done.statusCode, done.json().status, done.headers['preference-applied']], [200, 'completed', 'wait=30'])
  studio.engine.next('hang')
  const zero = await studio.create({}, { prefer: 'respond-async, wait=0' })
  t.same([zero.statusCode, zero.headers['preference-applied']], [202, 'wait=0'])
  await studio.engine.begun(2)
  studio.engine.release()
})

t.test('Prefer: wait holds the answer to a request that is sent again as well', async (t) => {
  const studio = await openStudio(t)
  studio.engine.next('hang')
  const again = (prefer?: string) => studio.create({}, { 'idempotency-key': 'k', ...(prefer === undefined ? {} : { prefer }) })
  const { id } = (await again()).json()
  const seen = ({ statusCode, headers, json }: Awaited<ReturnType<typeof again>>) => [statusCode, headers['idempotency-replayed'], headers['preference-applied'], json().id]
  t.same(seen(await again()), [200, 'true', undefined, id])
  t.same(seen(await again('wait=0')), [202, 'true', 'wait=0', id], 'the time is over first')
  const waiting = again('wait=30')
  await studio.engine.begun(1)
  studio.engine.release()
  const ended = await waiting
  t.same([...seen(ended), ended.json().status], [200, 'true', 'wait=30', id, 'completed'])
})

t.test('a suspended plan refuses new tasks; accepted ones are finished and can be read', async (t) => {
  const studio = await openStudio(t)
  const id = await studio.hanging()
  await studio.plan('studio', { product: 'Media', media: MEDIA, state: 'Suspended' }, 2)
  t.match((await studio.create()).json(), { status: 403, error: { code: 'plan_inactive' } })
  t.match((await studio.create({ kind: 'sculpture' })).json(), { status: 403 }, 'the plan goes before the request')
  studio.engine.release()
  t.match(await studio.until(id, isFinal), { status: 'completed' })
  t.equal((await studio.get('/api/v1/usage')).statusCode, 200)
})

t.test('a worker that stops in the midst of a claim hands the task back at once, and it costs no attempt', async (t) => {
  const studio = await openStudio(t)
  const claimed = Promise.withResolvers<void>()
  const slow = Promise.withResolvers<void>()
  const { change } = studio.store
  studio.store.change = async (id, operation, now) => {
    const answer = await change(id, operation, now)
    if (answer.outcome !== 'claimed') return answer
    claimed.resolve()
    await slow.promise
    return answer
  }
  const { id } = (await studio.create()).json()
  await claimed.promise
  const closed = studio.app.close()
  await new Promise((resolve) => setImmediate(resolve))
  slow.resolve()
  await closed
  t.match(await studio.store.task('acme', id), { state: 'queued', attempts: 0 })
  t.equal(holdOf((await studio.store.subscription(studio.subscription))?.media?.holds, id)?.run, null, 'another may claim it')
})

const several = (record: Record<string, unknown>) => (record['result'] as { images?: { image_url: string; bytes: number }[] }).images

t.test('several results of a task are held, charged and delivered together, and only those that were made', async (t) => {
  const studio = await openStudio(t)
  t.match((await studio.create({ n: 4 }, {}, '?dry_run=true')).json(), { estimated_cost: '0.1600' })
  studio.engine.next('make', { results: 2 })
  const whole = await studio.until((await studio.create({ n: 3 })).json().id, isFinal)
  t.match(whole, { status: 'completed', estimated_cost: '0.1200', actual_cost: '0.1200', refund_amount: null, result: { bytes: MADE.length } })
  t.same(studio.engine.runs.at(-1), { kind: 'image', prompt: 'a lighthouse', width: 1024, height: 1024, durationMs: null, seed: null, format: 'png', n: 3 })
  const images = several(whole)!
  t.same(images.map(({ bytes }) => bytes), [MADE.length, MADE.length + 3, MADE.length + 3])
  const contents = await Promise.all(images.map(async ({ image_url }) => (await studio.app.inject({ url: new URL(image_url).pathname + new URL(image_url).search })).body))
  t.same(contents, [MADE.toString(), `${MADE.toString()}, 2`, `${MADE.toString()}, 3`])
  t.equal(images[0]?.image_url, (whole['result'] as { image_url: string }).image_url)
  const part = await studio.until((await studio.create({ n: 4 })).json().id, isFinal)
  t.match(part, { status: 'completed', estimated_cost: '0.1600', actual_cost: '0.0800', refund_amount: '0.0800' })
  t.equal(several(part)?.length, 2)
  t.match(await usage(studio), { held: '0.0000', burned: '0.2000' })
  const one = await studio.until((await studio.create({ n: 1 })).json().id, isFinal)
  t.notOk(several(one))
  t.match((await studio.create({ n: 5 })).json(), { errors: [{ path: '/n', code: 'maximum' }] })
  t.match((await studio.create({ n: 2, max_cost: '0.07' })).json(), { status: 402, required: '0.0800' })
})

t.test('a quality costs its part of the price of the plan, and is requested as the model calls it', async (t) => {
  const engines = FAKE_ENGINES.replace('{ kind: image, engine: fake, price: { amount: "0.04", per: Job } }', '{ kind: image, engine: fake, price: { amount: "0.04", per: Job }, qualities: { low: { factor: 0.3 }, high: { factor: 4, value: ultra } }, defaults: { quality: low } }')
  const studio = await openStudio(t, { engines })
  const cost = async (body: object) => (await studio.create(body, {}, '?dry_run=true')).json().estimated_cost
  t.same([await cost({}), await cost({ quality: 'low' }), await cost({ quality: 'high', n: 2 })], ['0.0120', '0.0120', '0.3200'])
  t.match((await studio.create({ quality: 'medium' })).json(), { errors: [{ path: '/quality', code: 'enum', message: 'must be low or high' }] })
  t.match((await studio.create({ kind: 'video', quality: 'low' })).json(), { errors: [{ path: '/quality', code: 'not_allowed' }] }, 'a route without qualities')
  t.match((await studio.create({ kind: 'music', quality: 'low' })).json(), { errors: [{ path: '/quality', code: 'not_allowed', message: 'does not apply to music' }] })
  t.match(await studio.until((await studio.create({ quality: 'high' })).json().id, isFinal), { status: 'completed', actual_cost: '0.1600' })
  t.match(studio.engine.runs.at(-1), { quality: 'high' })
  t.match((await studio.get('/api/v1/capabilities')).json().generations[0], { price: { amount: '0.0120' }, options: ['n', 'quality', 'negative_prompt'], qualities: [{ quality: 'low', amount: '0.0120' }, { quality: 'high', amount: '0.1600' }], defaults: { quality: 'low' } })
})

t.test('a video begins with a picture, which is fetched and checked as the sources of operations are', async (t) => {
  const studio = await openStudio(t, { media: { attempts: 1 } })
  const { server, urls } = await openSources(t)
  const film = (image_url: string, more: object = {}) => studio.create({ kind: 'video', prompt: 'waves', negative_prompt: 'people', duration_seconds: 1, image_url, ...more })
  t.match(await studio.until((await film(urls.image)).json().id, isFinal), { status: 'completed', actual_cost: '0.0500' })
  t.match([studio.engine.runs.at(-1), studio.engine.inputs.at(-1)], [{ kind: 'video', negativePrompt: 'people' }, [{ role: 'media', contentType: 'image/png', content: IMAGE }]])
  t.notOk('image_url' in studio.engine.runs.at(-1)!)
  t.match(await studio.until((await film(`data:image/png;base64,${IMAGE.toString('base64')}`)).json().id, isFinal), { status: 'completed' })
  t.same(studio.engine.inputs.at(-1)?.[0]?.content, IMAGE)
  t.equal((await studio.app.files.list('', 100)).length, 2, 'the results alone are left')
  t.match(await studio.until((await film(urls.song)).json().id, isFinal), { status: 'failed', error: { code: 'unsupported_input', details: { source: '/image_url' } }, actual_cost: '0.0000' })
  t.match((await film('http://10.0.0.1/')).json(), { error: { code: 'url_not_allowed', param: 'image_url' } })
  t.match((await film(`http://example.com/${'a'.repeat(9000)}`)).json(), { errors: [{ path: '/image_url', code: 'maxLength' }] })
  t.match((await film(urls.image, { kind: 'image', duration_seconds: undefined })).json(), { errors: [{ path: '/image_url', code: 'not_allowed' }] })
  t.equal(server.received.filter(({ path }) => path === '/image').length, 1)
})
