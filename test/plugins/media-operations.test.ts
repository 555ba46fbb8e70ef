/** Operations over REST: the contract of every surface, and what REST has beside it. */
import t from 'tap'
import { mp4, png, wav } from '../backends/engines/media-samples.ts'
import { VALID } from '../contracts/operations/bodies.ts'
import { IMAGE, openSources } from '../contracts/operations/sources.ts'
import { operationPromises, runPromises, type Surface } from '../contracts/operations.ts'
import { runContract } from '../contracts/run-contract.ts'
import { openReceiver, ranged } from '../fakes/receiver.ts'
import { verifyStore } from '../../src/verify/verify.ts'
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
  const song = await uploaded(wav(3000))
  t.equal(await estimate({ operation: 'merge', media_urls: [song, song] }), '0.1520', '6 s, a tenth and a second')
  t.equal(await estimate({ operation: 'merge', media_urls: [song, urls.song] }), '0.6000')
  t.equal(await estimate({ operation: 'trim', media_url: song, start_time: 1 }), '0.0330')
  t.equal((await studio.operate({ operation: 'merge', media_urls: [song, song], max_cost: '0.20' })).statusCode, 202, 'a realistic max_cost')
  t.match((await studio.get('/api/v1/usage')).json(), { held: '0.1520' })
})

t.test('of sources elsewhere, max_cost is held in place of the maximum of the route, and bounds the result', async (t) => {
  const studio = await openStudio(t)
  const { urls } = await openSources(t)
  const made = async (body: object) => (await studio.operate(body, { prefer: 'wait=30' })).json()
  t.match(await made({ operation: 'merge', media_urls: [urls.song, urls.song], max_cost: '0.2' }), { status: 'completed', estimated_cost: '0.2000', actual_cost: '0.0300' })
  t.match(studio.engine.limits.at(-1), { durationMs: 10_250 }, 'the 10 s that it pays, and a frame')
  t.match(await made({ ...VALID.upscale(urls), max_cost: '0.01' }), { status: 'completed', estimated_cost: '0.0100' })
  t.match(studio.engine.limits.at(-1), { pixels: 2_000_000 }, 'a provider may round the sides up')
  t.match(await made({ ...VALID.upscale(urls), max_cost: '0.0001' }), { status: 'failed', error: { code: 'result_too_large', details: { source: '/media_url' } } })
  t.match(await made({ ...VALID.upscale(urls), max_cost: '0.000001' }), { status: 402, error: { code: 'max_cost_exceeded' } }, 'not even a pixel')
  t.match(await made({ operation: 'merge', media_urls: [urls.song, urls.song], max_cost: '0' }), { status: 402 }, 'nothing pays for nothing')
  t.match(await made({ ...VALID.background_remove(urls), max_cost: '0.01' }), { status: 402, required: '0.0200' }, 'a price that no source decides')
})

t.test('sources elsewhere are asked at creation what they are, and what they say is held', async (t) => {
  const studio = await openStudio(t, { loops: false, probes: true })
  const { server } = await openSources(t)
  const [film, index, song, picture] = [mp4(64, 48, 4000), mp4(64, 48, 4000, { bytes: 300_000, index: 'end' }), wav(4000), png(100, 50)]
  server.always(({ path, headers }) => ranged({ '/film': film, '/index': index, '/song': song, '/picture': picture }[path], headers.range))
  const estimate = async (body: object, query = '?dry_run=true') => (await studio.operate(body, {}, query)).json().estimated_cost
  const at = (...paths: string[]) => paths.map((path) => `${server.url}/${path}`)
  t.equal(await estimate({ operation: 'merge', media_urls: at('film', 'film') }), '0.1960', '8 s, a tenth and a second')
  t.same(server.received.map(({ path, headers }) => [path, headers.range]), [['/film', 'bytes=0-65535']], 'each address is asked once')
  t.equal(await estimate({ operation: 'merge', media_urls: at('film', 'index') }), '0.1960', 'an index at the end')
  t.equal(await estimate({ operation: 'merge', media_urls: at('song', 'away') }), '0.6000', 'the limit of the route')
  t.equal(await estimate({ operation: 'upscale', media_url: at('picture')[0] }), '0.0016')
  t.equal(await estimate({ operation: 'merge', media_urls: at('film', 'film'), max_cost: '0.1' }), '0.1000', 'max_cost bounds the result')
  server.received.length = 0
  const beyond = { operation: 'trim', media_url: at('film')[0], start_time: 30 }
  const refused = await studio.operate({ ...beyond, max_cost: '0' }, {}, '?dry_run=true')
  t.match([refused.statusCode, refused.json(), server.received.length], [402, { error: { code: 'max_cost_exceeded' } }, 0], 'nothing pays for nothing')
  t.equal(await estimate(beyond), '0.0000')
  server.received.length = 0
  t.equal(await estimate({ operation: 'trim', media_url: at('film')[0], start_time: 1, end_time: 3 }), '0.0200')
  t.equal(await estimate({ operation: 'background_remove', media_url: at('picture')[0] }), '0.0200')
  t.same(server.received, [], 'whose price does not follow from its source')
  const merge = { operation: 'merge', media_urls: at('film', 'song') }
  const created = await studio.operate(merge, { 'idempotency-key': 'k' })
  t.same([created.statusCode, server.received.length, (await studio.get('/api/v1/usage')).json().held], [202, 2, '0.1960'])
  const again = await studio.operate(merge, { 'idempotency-key': 'k' })
  t.same([again.statusCode, again.json().id, server.received.length], [200, created.json().id, 2], 'a repeated request asks nobody')
  for (const body of [{ ...merge, fold: true }, { operation: 'merge', media_urls: [at('film')[0], 'http://10.0.0.1/'] }]) t.equal((await studio.operate(body)).statusCode, 400)
  t.equal(server.received.length, 2, 'nor does one that is refused')
})

t.test('a size that cannot be makes no estimate: the maximum is held, and never less than nothing', async (t) => {
  const studio = await openStudio(t, { loops: false, probes: true })
  const server = await openReceiver(t)
  const [song, mp3] = [wav(4000), Buffer.alloc(16_000)]
  for (let at = 0; at < mp3.length; at += 417) mp3.set([0xff, 0xfb, 0x90, 0], at)
  for (const file of [song, mp3]) {
    for (const size of ['0', '1', '43', '99999999999999999999']) {
      const body = file.subarray(0, 65_536)
      server.always(() => ({ status: 206, headers: { 'content-range': `bytes 0-${body.length - 1}/${size}` }, body }))
      const merge = { operation: 'merge', media_urls: [`${server.url}/a`, `${server.url}/b`] }
      const expected = size.length > 2 && file === song ? '0.1960' : '0.6000'
      t.equal((await studio.operate(merge, {}, '?dry_run=true')).json().estimated_cost, expected, `${file === song ? 'WAV' : 'MP3'} of ${size} bytes`)
    }
  }
})

t.test('a source that is more when its task runs extends the hold, where the plan and max_cost allow it; else what is held bounds the result', async (t) => {
  const studio = await openStudio(t, { probes: true })
  const server = await openReceiver(t)
  let after = mp4(64, 48, 8000)
  server.always(({ headers }) => ranged(headers.range ? mp4(64, 48, 4000) : after, headers.range))
  const merge = { operation: 'merge', media_urls: [server.url, `${server.url}/2`] }
  const made = async (body: object) => (await studio.operate(body, { prefer: 'wait=30' })).json()
  t.match(await made(merge), { status: 'completed', estimated_cost: '0.3720', actual_cost: '0.0300', refund_amount: '0.3420' })
  t.match(studio.engine.limits.at(-1), { durationMs: 18_850 }, 'to 16 s, a tenth and a second, and a frame')
  t.match(await made({ ...merge, max_cost: '0.25' }), { status: 'completed', estimated_cost: '0.2500' })
  t.match(studio.engine.limits.at(-1), { durationMs: 12_750 })
  await studio.plan('studio', { product: 'Media', media: { ...MEDIA, allowance: '0.4' } }, 2)
  t.match(await made(merge), { status: 'completed', estimated_cost: '0.1960' }, 'the plan has less')
  t.match(studio.engine.limits.at(-1), { durationMs: 10_050 })
  t.match((await studio.get('/api/v1/usage')).json(), { held: '0.0000', burned: '0.0900' })
  after = Buffer.alloc(100)
  t.match(await made(merge), { status: 'failed', actual_cost: '0.0000', error: { code: 'unsupported_input' } })
  t.same((await verifyStore(studio.app.store, { now: studio.app.clock(), keptSince: 0, eventsKeptSince: 0 })).violations, [])
})

t.test('an inactive plan goes before every fault of the body, and a price of the plan before that of the service', async (t) => {
  const studio = await openStudio(t, { loops: false, media: { prices: [{ operation: 'upscale', amount: '0.5', per: 'Job' }] } })
  const { urls } = await openSources(t)
  t.match((await studio.operate(VALID.upscale(urls))).json(), { estimated_cost: '0.5000' })
  await studio.plan('studio', { product: 'Media', media: MEDIA, state: 'Suspended' }, 2)
  for (const body of [{}, { operation: 'fold' }, VALID.upscale(urls)]) t.match((await studio.operate(body)).json(), { status: 403, error: { code: 'plan_inactive' } })
})
