/** Operations over REST: the contract of every surface, and what REST has beside it. */
import t from 'tap'
import { png, wav } from '../backends/engines/media-samples.ts'
import { VALID } from '../contracts/operations/bodies.ts'
import { IMAGE, openSources } from '../contracts/operations/sources.ts'
import { operationPromises, runPromises, type Surface } from '../contracts/operations.ts'
import { runContract } from '../contracts/run-contract.ts'
import { MEDIA } from './gateway.ts'
import { openStudio } from './studio.ts'

const rest: Surface = {
  create: async (studio, body, key) => (await studio.operate(body, key === undefined ? {} : { 'idempotency-key': key })).json(),
  get: async (studio, id) => (await studio.get(`/api/v1/operations/${id}`)).json(),
  cancel: async (studio, id) => (await studio.post(`/api/v1/operations/${id}/cancel`)).json(),
}

t.test('the operations of the contract over REST', (t) => runContract(t, operationPromises(rest), () => null))
t.test('what becomes of operations', (t) => runContract(t, runPromises(rest), () => null))

t.test('an operation is created, retrieved, listed and canceled like a generation, in a collection of its own', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const { urls } = await openSources(t)
  const created = await studio.operate(VALID.upscale(urls), { 'idempotency-key': 'k' })
  const record = created.json()
  t.equal(created.statusCode, 202)
  t.match(created.headers, { location: `/api/v1/operations/${record.id}`, ratelimit: /^"plan";r=/ })
  t.match(record, { id: /^[0-9a-f]{8}-[0-9a-f]{4}-7/, object: 'operation', operation: 'upscale', input: { media_url: urls.image, scale: 2, output_format: 'png' }, status: 'queued', queue_position: 1, result: null, attempts: 0 })
  t.notOk('kind' in record || 'prompt' in record)
  const again = await studio.operate(VALID.upscale(urls), { 'idempotency-key': 'k' })
  t.same([again.statusCode, again.headers['idempotency-replayed'], again.json().id], [200, 'true', record.id])
  t.equal((await studio.create({}, { 'idempotency-key': 'k' })).statusCode, 422, 'a generation under that key is another request')
  await studio.operate(VALID.trim(urls))
  await studio.create()
  const list = async (query = '') => (await studio.get(`/api/v1/operations${query}`)).json().data.map(({ operation }: { operation: string }) => operation)
  t.same([await list(), await list('?operation=upscale'), await list('?operation=merge')], [['trim', 'upscale'], ['upscale'], []])
  t.equal((await studio.get('/api/v1/operations?kind=image')).statusCode, 400)
  const read = await studio.get(`/api/v1/operations/${record.id}`)
  t.same([read.statusCode, read.json().id, (await studio.get(`/api/v1/operations/${record.id}`, { 'if-none-match': String(read.headers.etag) })).statusCode], [200, record.id, 304])
  t.equal((await studio.get(`/api/v1/generations/${record.id}`)).statusCode, 404)
  t.match((await studio.post(`/api/v1/operations/${record.id}/cancel`)).json(), { status: 'canceled', refund_amount: '0.1600' })
  t.same((await studio.get(`/api/v1/operations/${record.id}/deliveries`)).json().data, [])
})

t.test('a dry run of an operation validates and quotes it, fetches nothing and stores nothing', async (t) => {
  const studio = await openStudio(t)
  const { server, urls } = await openSources(t)
  const quote = await studio.operate(VALID.trim(urls), {}, '?dry_run=true')
  t.equal(quote.statusCode, 200)
  t.match(quote.json(), { object: 'quote', operation: 'trim', estimated_cost: '0.6000', available: '10.0000', affordable: true, queue_position: 1 })
  t.match((await studio.operate({ ...VALID.trim(urls), media_url: 'http://10.0.0.1/' }, {}, '?dry_run=true')).json(), { error: { code: 'url_not_allowed', param: 'media_url' } })
  t.match((await studio.operate({ ...VALID.trim(urls), end_time: 40.1, max_cost: '0.39' })).json(), { status: 402, required: '0.4000', error: { code: 'max_cost_exceeded' } })
  t.match((await studio.operate({ operation: 'upscale', media_url: `data:image/png;base64,${IMAGE.toString('base64')}` }, {}, '?dry_run=true')).json(), { object: 'quote', operation: 'upscale' })
  t.same([(await studio.get('/api/v1/operations')).json().data, server.received, await studio.app.files.list('', 10)], [[], [], []])
})

t.test('sources that are here bound the hold: uploads, results and data: URLs', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const { urls } = await openSources(t)
  const uploaded = async (body: Buffer) => (await studio.app.inject({ method: 'POST', url: '/api/v1/uploads', headers: { authorization: `Bearer ${studio.raw}`, 'content-type': 'audio/wav' }, payload: body })).json().media_url
  const estimate = async (body: object) => (await studio.operate(body, {}, '?dry_run=true')).json().estimated_cost
  const thumbnail = png(100, 50)
  t.equal(await estimate({ operation: 'upscale', media_url: await uploaded(thumbnail) }), '0.0016', '20,000 pixels')
  t.equal(await estimate({ operation: 'upscale', media_url: `data:image/png;base64,${thumbnail.toString('base64')}` }), '0.0016')
  t.equal(await estimate({ operation: 'upscale', media_url: urls.image }), '0.1600', 'the limit of the route')
  const song = await uploaded(wav(4000))
  t.equal(await estimate({ operation: 'merge', media_urls: [song, song] }), '0.1960', '8 s, a tenth and a second')
  t.equal(await estimate({ operation: 'merge', media_urls: [song, urls.song] }), '0.6000')
  t.equal(await estimate({ operation: 'trim', media_url: song, start_time: 1 }), '0.0440')
  t.equal((await studio.operate({ operation: 'merge', media_urls: [song, song], max_cost: '0.20' })).statusCode, 202, 'a realistic max_cost')
  t.match((await studio.get('/api/v1/usage')).json(), { held: '0.1960' })
})

t.test('of sources elsewhere, max_cost is held in place of the maximum of the route, and bounds the result', async (t) => {
  const studio = await openStudio(t)
  const { urls } = await openSources(t)
  const made = async (body: object) => (await studio.operate(body, { prefer: 'wait=30' })).json()
  t.match(await made({ operation: 'merge', media_urls: [urls.song, urls.song], max_cost: '0.2' }), { status: 'completed', estimated_cost: '0.2000', actual_cost: '0.0300' })
  t.match(studio.engine.limits.at(-1), { durationMs: 10_250 }, 'the 10 s that it pays, and a frame')
  t.match(await made({ ...VALID.upscale(urls), max_cost: '0.01' }), { status: 'completed', estimated_cost: '0.0100' })
  t.match(studio.engine.limits.at(-1), { pixels: 2_000_000 }, 'a provider may round the sides up')
  t.match(await made({ ...VALID.upscale(urls), max_cost: '0.000001' }), { status: 'failed', error: { code: 'result_too_large', details: { source: '/media_url' } } })
  t.match(await made({ operation: 'merge', media_urls: [urls.song, urls.song], max_cost: '0' }), { status: 402 }, 'nothing pays for nothing')
  t.match(await made({ ...VALID.background_remove(urls), max_cost: '0.01' }), { status: 402, required: '0.0200' }, 'a price that no source decides')
})

t.test('an inactive plan goes before every fault of the body, and a price of the plan before that of the service', async (t) => {
  const studio = await openStudio(t, { loops: false, media: { prices: [{ operation: 'upscale', amount: '0.5', per: 'Job' }] } })
  const { urls } = await openSources(t)
  t.match((await studio.operate(VALID.upscale(urls))).json(), { estimated_cost: '0.5000' })
  await studio.plan('studio', { product: 'Media', media: MEDIA, state: 'Suspended' }, 2)
  for (const body of [{}, { operation: 'fold' }, VALID.upscale(urls)]) t.match((await studio.operate(body)).json(), { status: 403, error: { code: 'plan_inactive' } })
})
