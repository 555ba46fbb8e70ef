/** The replicate engine against a server that follows the published API: the inputs of each model, the outcome of each state, and that no job is paid twice. */
import t, { type Test } from 'tap'
import type { NotMade, Engine, EngineRequest } from '../../../src/backends/engines/engine.ts'
import type { OperationRequest } from '../../../src/domain/media-operations.ts'
import { modelInput, USUAL_NAMES } from '../../../src/backends/engines/replicate/model-inputs.ts'
import { resultUrls, targetOf } from '../../../src/backends/engines/replicate/predictions.ts'
import { replicateEngines } from '../../../src/backends/engines/replicate/replicate.ts'
import type { GenerationRequest } from '../../../src/domain/media-generations.ts'
import { TASK_ERRORS } from '../../../src/domain/task.ts'
import { enginePromises } from '../../contracts/engine.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { answers, cuts, hangs, json, redirects, sends, type Respond } from '../../fakes/provider.ts'
import { openReplicate, problem, REPLICATE_TOKEN, type FakeReplicate, type Prediction } from '../../fakes/replicate.ts'
import { mp4, png, wav } from './media-samples.ts'
import { bytesOf, fakeOutside, input, runOf, type FakeOutside } from './provider-run.ts'

const image: GenerationRequest = { kind: 'image', prompt: 'a lighthouse', width: 64, height: 48, durationMs: null, seed: 3, format: 'png' }
const video: GenerationRequest = { kind: 'video', prompt: 'waves', width: 1280, height: 720, durationMs: 5000, seed: null, format: 'mp4' }
const upscale = { kind: 'upscale', scale: 4, format: 'png' } as const
const inpaint = { kind: 'inpaint', prompt: 'a boat', seed: null, growMask: 0, format: 'png' } as const

const ALL = Object.fromEntries(Object.keys(USUAL_NAMES).map((kind) => [kind, {}]))
const MODEL = 'acme/painter'

type Place = { fake: FakeReplicate; engine: Engine; outside: FakeOutside }

async function open(t: Test, options: Record<string, unknown> = {}): Promise<Place> {
  const [fake, outside] = [await openReplicate(t), fakeOutside()]
  const engine = await replicateEngines(outside)('models', { baseUrl: fake.url, apiKey: REPLICATE_TOKEN, offers: ALL, ...options })
  t.teardown(() => engine.close())
  return { fake, engine, outside }
}

const only = (fake: FakeReplicate): Prediction => [...fake.predictions.values()].at(-1) as Prediction
const run = (more: Parameters<typeof runOf>[0] = {}) => runOf({ model: MODEL, ...more })

t.test('the contract', (t) =>
  runContract(
    t,
    enginePromises,
    async (t) => {
      const { engine } = await open(t)
      const { limits } = runOf()
      return { engine: { ...engine, quote: (request) => engine.quote(request, limits), run: (request, control) => engine.run(request, run({ ...control, model: MODEL })) }, requests: [image] }
    },
    { 'the same prompt and seed give the same bytes, another seed gives others': 'what a provider makes of a seed is its own' },
  ))

t.test('a prediction is created once, remembered, polled with growing pauses, and its output fetched and measured', async (t) => {
  const { fake, engine, outside } = await open(t)
  fake.states.unshift({ status: 'starting' }, { status: 'processing' })
  const order: string[] = []
  const made = await engine.run(image, run({ job: { id: null, remember: async (id) => void order.push(`${id} after ${fake.received.length}`) } }))
  t.match(made, { outcome: 'made', contentType: 'image/png', facts: { width: 64, height: 48, durationMs: null }, used: { Job: 1000, Second: 0, Megapixel: 4 } })
  t.same(await bytesOf(made), png(64, 48))
  t.same(order, [`${only(fake).id} after 1`])
  t.same(outside.pauses, [375, 563, 844, 1266])
  t.match(fake.received[0], { method: 'POST', path: '/v1/models/acme/painter/predictions', headers: { authorization: `Bearer ${REPLICATE_TOKEN}`, 'idempotency-key': '0190-task:1', prefer: undefined } })
  t.equal(fake.received.at(-1)?.headers.authorization, `Bearer ${REPLICATE_TOKEN}`, 'outputs on the API\'s own origin need the key')
})

t.test('the route names the model: an official one, one with a version, or a version', async (t) => {
  const version = '9dcd6d78e7c6560c340d916fe32e9f24aabfa331e5cce95fe31f77fb03121426'
  const { fake, engine } = await open(t)
  await engine.run(image, run({ model: `acme/painter:${version}` }))
  await engine.run(image, run({ model: version }))
  t.same(fake.to('POST /v1/predictions').map(({ body }) => (JSON.parse(body.toString()) as { version: string }).version), [version, version])
  for (const model of [null, 'painter', 'a/b/c', '../x', 'a/b?c', 'https://a/b']) {
    t.equal(targetOf(model), null, String(model))
    t.match(await engine.run(image, run({ model })), { code: 'provider_error', retryable: false })
  }
})

t.test('the parts of a request go to the inputs that the entry names, else to the usual ones', async (t) => {
  const { fake, engine } = await open(t, { offers: { image: { formats: ['png'], inputs: { prompt: 'text', aspectRatio: 'aspect_ratio', format: 'output_format', size: 'size' } }, video: {} } })
  await engine.run({ ...image, width: 1366, height: 768 }, run())
  t.same(only(fake).input, { text: 'a lighthouse', aspect_ratio: '16:9', output_format: 'png', size: '1366x768' })
  fake.states = [{ status: 'succeeded', output: `${fake.origin}/delivery/film.mp4` }]
  fake.next('GET /delivery/film.mp4', sends(mp4(1280, 720, 5000), 'video/mp4'))
  t.match(await engine.run(video, run()), { contentType: 'video/mp4', facts: { width: 1280, height: 720, durationMs: 5000 }, used: { Second: 5000 } })
  t.same(only(fake).input, { prompt: 'waves', duration: 5, aspect_ratio: '16:9' })
})

t.test('what is ordered is held: a length that the model makes, within the limits', async (t) => {
  const { fake, engine } = await open(t, { offers: { video: { seconds: [5, 10] }, music: {} } })
  const music: GenerationRequest = { ...video, kind: 'music', width: null, height: null, format: 'wav' }
  const cases: [GenerationRequest, number, number, number][] = [
    [video, 100, 60_000, 5], [video, 8000, 60_000, 10], [video, 8000, 8000, 5], [music, 100, 60_000, 1], [music, 2500, 60_000, 3], [music, 2700, 2900, 2],
  ]
  for (const [request, durationMs, mostMs, seconds] of cases) {
    const limits = { ...runOf().limits, durationMs: mostMs }
    t.equal(engine.quote({ ...request, durationMs }, limits, MODEL).Second, seconds * 1000, `${request.kind} of ${durationMs} ms`)
    await engine.run({ ...request, durationMs }, run({ limits }))
    t.equal(only(fake).input['duration'], seconds)
  }
  const { engine: untold } = await open(t, { offers: { music: { inputs: { prompt: 'prompt' } } } })
  t.equal(untold.quote(music, { ...runOf().limits, durationMs: 30_000 }, MODEL).Second, 30_000, 'a model that is told no length makes up to the limit')
  const [before, limits] = [fake.received.length, { ...runOf().limits, durationMs: 4000 }]
  t.match(await engine.run({ ...video, durationMs: 4000 }, run({ limits })), { code: 'provider_error', retryable: false })
  t.equal(fake.received.length, before, 'nothing is ordered that is above the limits')
})

t.test('a model that is told no size makes up to the limit of its route, whatever size was requested or its source has', async (t) => {
  const { engine } = await open(t, { offers: { ...ALL, image: { inputs: { prompt: 'prompt', aspectRatio: 'aspect_ratio', n: 'n', width: 'width' } } } })
  const { engine: sized } = await open(t, { offers: { ...ALL, video: { inputs: { prompt: 'prompt', size: 'size' } } } })
  const { limits: max } = runOf()
  const quoted = (of: Engine, request: EngineRequest, pixels = max.pixels) => of.quote(request, { ...max, pixels }, MODEL, max).Megapixel
  const tiny = { width: 16, height: 16 }
  t.same([quoted(engine, { ...image, ...tiny }), quoted(engine, { ...image, ...tiny, n: 3 }), quoted(engine, { ...video, ...tiny })], [16_000, 48_000, 16_000])
  t.same([quoted(sized, { ...image, ...tiny }), quoted(sized, { ...video, ...tiny })], [1, 1])
  for (const request of [inpaint, { kind: 'background_remove', background: 'transparent', crop: false, format: 'png' }] as const) t.equal(quoted(engine, request, 256), 16_000, request.kind)
  t.equal(quoted(engine, upscale, 4096), 5, 'its scale is told')
})

t.test('every operation gets its inputs, and is not made without an input that would change its result', async (t) => {
  const urls = { media: ['m1', 'm2'], mask: null }
  const cases: [OperationRequest, Record<string, unknown> | string][] = [
    [{ kind: 'background_remove', background: 'transparent', crop: false, format: 'png' }, { image: 'm1' }],
    [{ kind: 'background_remove', background: '#ff0000', crop: false, format: 'png' }, 'background'],
    [{ kind: 'background_remove', background: 'transparent', crop: true, format: 'png' }, 'crop'],
    [upscale, { image: 'm1', scale: 4 }],
    [{ kind: 'ai_edit', prompt: 'p', strength: null, seed: 4, format: 'png' }, { image: 'm1', prompt: 'p', seed: 4 }],
    [{ kind: 'ai_edit', prompt: 'p', strength: 0.5, seed: null, format: 'png' }, { image: 'm1', prompt: 'p' }],
    [{ kind: 'trim', startMs: 1500, endMs: 4000, mode: 'fast', format: 'mp4' }, { video: 'm1', start_time: 1.5, end_time: 4 }],
    [{ kind: 'trim', startMs: 0, endMs: null, mode: 'fast', format: 'mp4' }, { video: 'm1', start_time: 0 }],
    [{ kind: 'merge', transition: 'none', fit: 'contain', format: 'mp4' }, { videos: ['m1', 'm2'] }],
    [{ kind: 'merge', transition: 'fade', fit: 'contain', format: 'mp4' }, 'transition'],
  ]
  for (const [request, expected] of cases) {
    const given = modelInput(request, USUAL_NAMES[request.kind], urls)
    t.same(given.outcome === 'input' ? given.input : given.part, expected, JSON.stringify(request))
  }
  t.same(modelInput(inpaint, USUAL_NAMES.inpaint, { media: ['m'], mask: 'k' }), { outcome: 'input', input: { image: 'm', mask: 'k', prompt: 'a boat' } })
  t.match(modelInput(cases[4]![0], { ...USUAL_NAMES.ai_edit, strength: 'prompt_strength' }, urls), { input: { prompt_strength: undefined } })
  t.match(modelInput(cases[5]![0], { ...USUAL_NAMES.ai_edit, strength: 'prompt_strength' }, urls), { input: { prompt_strength: 0.5 } })
  t.same(modelInput(inpaint, { media: 'image', prompt: 'prompt' }, { media: ['m'], mask: 'k' }), { outcome: 'lacking', part: 'mask' })
  const { fake, engine } = await open(t)
  t.match(await engine.run({ kind: 'background_remove', background: '#00ff00', crop: false, format: 'png' }, run({ inputs: [input('media', png(4, 4))] })), { code: 'not_supported', retryable: false })
  t.equal(fake.received.length, 0)
})

t.test('small inputs are data URLs in the request, large ones are streamed to the files API', async (t) => {
  const { fake, engine } = await open(t)
  const [small, large] = [mp4(64, 48, 1000), mp4(64, 48, 1000, { bytes: 3_000_000 })]
  fake.states = [{ status: 'succeeded', output: [`${fake.origin}/delivery/film.mp4`] }]
  fake.next('GET /delivery/film.mp4', sends(small, 'video/mp4'))
  t.equal((await engine.run({ kind: 'merge', transition: 'none', fit: 'cover', format: 'mp4' }, run({ inputs: [input('media', small), input('media', large)] }))).outcome, 'made')
  const [file] = fake.files.values()
  t.ok(file?.bytes.equals(large))
  t.match(file, { name: 'input.mp4', type: 'video/mp4' })
  t.same(only(fake).input, { videos: [`data:video/mp4;base64,${small.toString('base64')}`, `${fake.url}/files/${[...fake.files.keys()][0]}`] })
  fake.next('POST /v1/files', answers(503), answers(413, problem(413, 'Too large', 'no')))
  for (const retryable of [true, false]) t.match(await engine.run({ kind: 'trim', startMs: 0, endMs: null, mode: 'fast', format: 'mp4' }, run({ inputs: [input('media', large)] })), { code: 'provider_error', retryable })
})

t.test('a picture that would be too large when enlarged is refused before it is paid for', async (t) => {
  const { fake, engine } = await open(t)
  const inputs = [input('media', png(200, 100))]
  t.match(await engine.run(upscale, run({ inputs, limits: { ...runOf().limits, pixels: 319_999 } })), { code: 'input_too_large', retryable: false })
  t.equal(fake.received.length, 0)
  t.equal((await engine.run(upscale, run({ inputs, limits: { ...runOf().limits, pixels: 320_000 } }))).outcome, 'made')
})

t.test('a mask is sent with the marks of the model', async (t) => {
  const { fake, engine } = await open(t)
  const mask = png(60, 40, { paint: (x) => (x < 9 ? [255, 255, 255] : [0, 0, 0]) })
  t.equal((await engine.run(inpaint, run({ inputs: [input('media', png(60, 40)), input('mask', mask)] }))).outcome, 'made')
  t.equal(only(fake).input['mask'], `data:image/png;base64,${mask.toString('base64')}`)
  t.match(await engine.run(inpaint, run({ inputs: [input('media', png(60, 40)), input('mask', png(60, 80))] })), { code: 'mask_mismatch' })
})

t.test('each state and each failure becomes its code', async (t) => {
  const { fake, engine } = await open(t, { timeouts: { firstByteMs: 300 } })
  const ends = async (state: Partial<Prediction>): Promise<NotMade> => {
    fake.states = [state]
    return (await engine.run(image, run())) as NotMade
  }
  const rejected = { code: 'provider_rejected', retryable: false }
  const again = { code: 'provider_error', retryable: true }
  for (const error of ['NSFW content detected. Try running it again, or try a different prompt.', 'The input or output was flagged as sensitive. Please try again with different inputs. (E005) (uIJ6l3ruRD)', 'Prompt was blocked by content moderation.']) {
    t.match(await ends({ status: 'failed', error }), rejected, error)
  }
  t.match(await ends({ status: 'failed', error: 'CUDA out of memory' }), again)
  t.match(await ends({ status: 'failed', error: null }), again)
  t.match(await ends({ status: 'canceled' }), again)
  t.match(await ends({ status: 'aborted' }), again)
  t.match(await ends({ status: 'succeeded', output: null, data_removed: true }), again)
  t.match(await ends({ status: 'succeeded', output: null }), again)
  t.match(await ends({ status: 'succeeded', output: [] }), { code: 'provider_error', retryable: false })
  t.match(await ends({ status: 'succeeded', output: { text: 'no address' } }), { code: 'provider_error', retryable: false, cause: { message: /\{text\}/ } })

  const cases: [string, Respond, string, boolean][] = [
    ['a rate limit', answers(429, { detail: 'Request was throttled. Your rate limit resets in ~30s.' }, { 'retry-after': '30' }), 'provider_error', true],
    ['no credit', answers(402, problem(402, 'Insufficient credit', 'You have insufficient credit')), 'provider_error', false],
    ['a wrong key', answers(401, problem(401, 'Unauthenticated', REPLICATE_TOKEN)), 'provider_error', false],
    ['an unknown model', answers(404, problem(404, 'Not found', 'The requested resource could not be found.')), 'provider_error', false],
    ['an input that the model does not take', answers(422, problem(422, 'Input validation failed', '- input.width: Must be less than 1440')), 'provider_error', false],
    ['a refused prompt', answers(422, problem(422, 'Input validation failed', 'the prompt was flagged as sensitive (E005)')), 'provider_rejected', false],
    ['an internal error', answers(500, problem(500, 'Internal', 'oops')), 'provider_error', true],
    ['a cut connection', cuts, 'provider_error', true],
    ['silence', hangs, 'provider_timeout', true],
    ['an answer without an id', answers(201, { status: 'starting' }), 'provider_error', true],
    ['a redirect', redirects('http://169.254.169.254/'), 'provider_error', false],
  ]
  for (const [what, respond, code, retryable] of cases) {
    fake.next('POST /v1/models/acme/painter/predictions', respond)
    t.match(await engine.run(image, run()), { outcome: 'failed', code, retryable }, what)
  }
})

t.test('an output that has expired, lies about its type, is too large or has an internal address is not delivered', async (t) => {
  const { fake, engine } = await open(t)
  const run1 = (respond: Respond, limits = runOf().limits) => {
    fake.next('GET /delivery/out-0.png', respond)
    return engine.run(image, run({ limits }))
  }
  for (const status of [403, 404, 410]) t.match(await run1(answers(status)), { code: 'provider_error', retryable: true, keepsJob: undefined })
  for (const status of [429, 500, 503]) t.match(await run1(answers(status)), { code: 'provider_error', retryable: true, keepsJob: true }, 'its prediction is kept')
  t.match(await run1(sends(Buffer.from('<html>expired</html>'), 'image/png')), { code: 'provider_error', retryable: true, keepsJob: undefined })
  t.match(await run1(sends(wav(100), 'image/png')), { code: 'provider_error', retryable: false })
  t.match(await run1(sends(png(64, 48), 'text/html')), { outcome: 'made', contentType: 'image/png' }, 'the header does not count')
  t.match(await run1(sends(png(64, 48), 'image/png'), { ...runOf().limits, bytes: 50 }), { code: 'provider_error', retryable: false })
  t.match(await run1(redirects('http://169.254.169.254/latest')), { code: 'provider_error', retryable: false })
  t.match(await run1((response) => void response.writeHead(200, { 'content-length': 1000 }).write('half', () => response.destroy())), { code: 'provider_error', retryable: true, keepsJob: true })
  for (const output of ['http://10.0.0.1/x.png', 'http://169.254.169.254/x.png', 'http://[::1]:1/x.png', 'file:///etc/passwd', 'https://', 'http://localhost/x.png']) {
    fake.states = [{ status: 'succeeded', output }]
    t.match(await engine.run(image, run()), { code: 'provider_error', retryable: false }, output)
  }
})

t.test('an output may be an object, or hold lists: the address counts that ends as the format does, else the first', async (t) => {
  const { fake, engine } = await open(t)
  const [picture, mask] = [`${fake.origin}/delivery/out-0.png`, `${fake.origin}/delivery/mask.jpg`]
  for (const output of [{ mask, image: picture }, { images: [picture, mask] }, [[picture]], { video: null, result: { url: picture } }, { image: `${picture}?sig=a.jpg` }]) {
    fake.states = [{ status: 'succeeded', output }]
    t.match(await engine.run(image, run()), { outcome: 'made', facts: { width: 64 } }, JSON.stringify(output))
  }
  t.same([resultUrls({ a: 'https://a/1', b: 'https://a/2.JPG' }, 'jpeg', 1), resultUrls({ a: 'https://a/1', b: 'https://a/2' }, 'jpeg', 1)], [['https://a/2.JPG'], ['https://a/1']])
  t.same(resultUrls(JSON.parse(`${'['.repeat(9000)}"https://a"${']'.repeat(9000)}`), 'png', 1), [], 'not at any depth')
})

t.test('of several results the whole ones are delivered and charged', async (t) => {
  const { fake, engine } = await open(t, { offers: { image: { inputs: { prompt: 'prompt', n: 'num_outputs' } } } })
  const urls = [0, 1, 2, 3, 4].map((i) => `${fake.origin}/delivery/${i}.png`)
  fake.states = [{ status: 'succeeded', output: urls }]
  fake.next('GET /delivery/*', sends(png(8, 8).subarray(0, 60), 'image/png'), sends(png(8, 8), 'image/png'), answers(500), sends(png(16, 16), 'image/png'))
  const made = await engine.run({ ...image, n: 4 }, run())
  t.equal(only(fake).input['num_outputs'], 4)
  t.match(made, { outcome: 'made', facts: { width: 8 }, used: { Job: 2000, Second: 0, Megapixel: 2 }, others: [{ facts: { width: 16 } }] })
  fake.next('GET /delivery/*', ...urls.slice(0, 4).map(() => answers(500)))
  t.match(await engine.run({ ...image, n: 4 }, run()), { code: 'provider_error', retryable: true })
})

t.test('a result whose header tells no length is counted, or charged as it was quoted', async (t) => {
  const { fake, engine } = await open(t)
  fake.states = [{ status: 'succeeded', output: `${fake.origin}/delivery/out.mp4` }]
  const trimmed = (fragmentMs?: number) => {
    fake.next('GET /delivery/out.mp4', sends(mp4(64, 48, 0, fragmentMs === undefined ? {} : { fragmentMs }), 'video/mp4'))
    return engine.run({ kind: 'trim', startMs: 0, endMs: 4000, mode: 'accurate', format: 'mp4' }, run({ inputs: [input('media', mp4(64, 48, 9000))] }))
  }
  t.match(await trimmed(3000), { outcome: 'made', facts: { durationMs: 3000 }, used: { Second: 3000 } })
  t.match(await trimmed(70_000), { code: 'provider_error', retryable: false }, 'above the limit')
  t.match(await trimmed(), { outcome: 'made', facts: { durationMs: null }, used: { Second: 4000 } })
})

t.test('a result that was cut off is not delivered', async (t) => {
  const { fake, engine } = await open(t)
  const whole = png(300, 200, { paint: (x, y) => [(x * y) % 256, x % 256, y] })
  fake.next('GET /delivery/out-0.png', sends(whole.subarray(0, whole.length / 2), 'image/png'))
  t.match(await engine.run(image, run()), { code: 'provider_error', retryable: true, cause: /broken/ })
})

t.test('a creation that the provider puts off waits for as long as it says', async (t) => {
  const { fake, engine } = await open(t)
  const path = 'POST /v1/models/acme/painter/predictions'
  fake.next(path, answers(429, {}, { 'retry-after': '30' }), answers(503, {}, { 'retry-after': 'Thu, 01 Oct 2026 00:01:00 GMT' }), answers(500, {}, { 'retry-after': '30' }), answers(429))
  for (const retryAfterMs of [30_000, 60_000, undefined, undefined]) t.match(await engine.run(image, run()), { code: 'provider_error', retryable: true, retryAfterMs })
  fake.next('POST /v1/files', answers(429, {}, { 'retry-after': '5' }))
  const inputs = [input('media', mp4(8, 8, 10, { bytes: 400_000 }))]
  t.match(await engine.run({ kind: 'trim', startMs: 0, endMs: null, mode: 'fast', format: 'mp4' }, run({ inputs })), { retryAfterMs: 5000 }, 'an upload as well')
})

t.test('another port of the API\'s host is another service', async (t) => {
  const { fake, engine } = await open(t)
  const other = await openReplicate(t)
  fake.states = [{ status: 'succeeded', output: `${other.origin}/delivery/out-0.png` }]
  t.match(await engine.run(image, run()), { code: 'provider_error', retryable: false })
  fake.states = [{ status: 'succeeded', output: `${fake.origin}/delivery/out-0.png` }]
  fake.next('GET /delivery/out-0.png', redirects(`${other.origin}/delivery/out-0.png`))
  t.match(await engine.run(image, run()), { code: 'provider_error', retryable: false }, 'by a redirect neither')
  t.same(other.received, [])
})

t.test('an output may be a data URL', async (t) => {
  const { fake, engine } = await open(t)
  const ends = async (output: string, limits = runOf().limits) => {
    fake.states = [{ status: 'succeeded', output }]
    return engine.run(image, run({ limits }))
  }
  t.match(await ends(`data:text/plain;base64,${png(5, 4).toString('base64')}`), { outcome: 'made', contentType: 'image/png', facts: { width: 5, height: 4 } })
  const escaped = [...png(5, 4)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')
  t.match(await ends(`data:image/png,${escaped}`), { outcome: 'made', facts: { width: 5, height: 4 } })
  t.match(await ends(`data:image/png;base64,${'A'.repeat(9000)}`, { ...runOf().limits, bytes: 1000 }), { code: 'provider_error', retryable: false })
  t.match(await ends('data:image/png;base64'), { code: 'provider_error', retryable: true })
})

t.test('a run resumes the prediction of an earlier one; one that is gone is created anew', async (t) => {
  const { fake, engine } = await open(t)
  await engine.run(image, run())
  const { id } = only(fake)
  const resumed = run()
  t.equal((await engine.run(image, { ...resumed, job: { ...resumed.job, id } })).outcome, 'made')
  t.same([fake.predictions.size, resumed.remembered], [1, []])
  const anew = run()
  t.equal((await engine.run(image, { ...anew, job: { ...anew.job, id: 'gone' } })).outcome, 'made')
  t.same([fake.predictions.size, anew.remembered], [2, [only(fake).id]])
})

t.test('a prediction is resumed after its route has another engine, whatever the model is called there; the next attempt begins another', async (t) => {
  const { fake, engine } = await open(t)
  await engine.run(image, run())
  const moved = run({ model: 'gpt-image-1.5' })
  const resumed = (id: string) => engine.run(image, { ...moved, job: { ...moved.job, id, resumeOnly: true } })
  t.equal((await resumed(only(fake).id)).outcome, 'made')
  t.match(await resumed('gone'), { code: 'provider_error', retryable: true })
  t.same([fake.predictions.size, moved.remembered], [1, []])
})

t.test('a canceled task cancels its prediction; an interrupted run leaves it', async (t) => {
  for (const [why, status] of [['canceled', 'canceled'], ['lost', 'processing'], ['stopping', 'processing']]) {
    const { fake, engine, outside } = await open(t)
    fake.states = [{ status: 'processing' }]
    const controller = new AbortController()
    const reason = Object.assign(new Error('cut'), { why })
    outside.onPause = (count) => count === 3 && controller.abort(reason)
    await t.rejects(engine.run(image, run({ signal: controller.signal })), reason)
    await engine.close()
    t.equal(only(fake).status, status, String(why))
  }
})

t.test('a prediction that has ended is kept where its output cannot be fetched in time, or not be stored: it is paid for', async (t) => {
  const { fake, engine } = await open(t)
  const controller = new AbortController()
  const late = new DOMException('late', 'TimeoutError')
  fake.next('GET /delivery/*', (response) => void response.writeHead(200).write('half', () => controller.abort(late)))
  const cut = run({ signal: controller.signal })
  await t.rejects(engine.run(image, cut), late)
  await engine.close()
  t.match([cut.job, only(fake)], [{ hasEnded: true }, { status: 'succeeded' }])
  const nowhere = fakeOutside({ scratchFolder: '/nowhere' })
  const full = await replicateEngines(nowhere)('models', { baseUrl: fake.url, apiKey: REPLICATE_TOKEN, offers: ALL })
  t.teardown(() => full.close())
  fake.next('GET /delivery/*', sends(Buffer.alloc(2_000_000), 'image/png'))
  const unstored = run()
  await t.rejects(full.run(image, unstored), { code: 'ENOENT' })
  t.match(unstored.job, { hasEnded: true })
})

t.test('a run that is canceled while its input is uploaded creates nothing', async (t) => {
  const { fake, engine } = await open(t)
  const controller = new AbortController()
  fake.next('POST /v1/files', hangs)
  const trim: EngineRequest = { kind: 'trim', startMs: 0, endMs: null, mode: 'fast', format: 'mp4' }
  const running = engine.run(trim, run({ signal: controller.signal, inputs: [input('media', mp4(8, 8, 10, { bytes: 400_000 }))] }))
  await fake.arrived('POST /v1/files')
  const reason = new Error('canceled')
  controller.abort(reason)
  await t.rejects(running, reason)
  await engine.close()
  t.equal(fake.predictions.size, 0)
})

t.test('wrong options are refused in one sentence', async (t) => {
  const cases: [Record<string, unknown>, string | RegExp][] = [
    [{ apiKey: 'x' }, /offers/],
    [{ apiKey: 'x', offers: {} }, /^offers must/],
    [{ offers: { image: {} } }, 'apiKey, apiKeyFile or apiKeyEnv is missing'],
    [{ apiKey: 'x', offers: { image: { inputs: { colour: 'c' } } } }, 'offers.image.inputs.colour is not a setting'],
    [{ apiKey: 'x', offers: { inpaint: { masks: 'red' } } }, /^offers\.inpaint\.masks must be/],
    [{ apiKey: 'x', offers: { image: { masks: 'white' } } }, 'offers.image.masks is not a setting'],
    [{ apiKey: 'x', offers: { image: {} }, resultHosts: ['*.example.com'] }, /^resultHosts/],
  ]
  for (const [options, message] of cases) await t.rejects(replicateEngines(fakeOutside())('models', options), { message }, JSON.stringify(options))
  const outside = fakeOutside()
  const engine = await replicateEngines(outside)('models', { apiKey: 'x', offers: { upscale: { formats: ['webp', 'png'] } }, resultHosts: ['Files.example.com', '10.1.2.3'] })
  t.same(engine.offers, { upscale: { formats: ['webp', 'png'] } })
  t.same(outside.allowed, [[], ['files.example.com', '10.1.2.3']], "the vendor's own address must be public")
  await engine.close()
})

t.test('no outcome names the provider, its host, the model or the key; the cause never holds the key', async (t) => {
  const { fake, engine } = await open(t, { timeouts: { firstByteMs: 300 } })
  const words = `${REPLICATE_TOKEN} at ${fake.origin} by ${MODEL} of Replicate`
  const failures: NotMade[] = []
  for (const respond of [answers(400, problem(400, words, words)), answers(401, { detail: words }), answers(429, { detail: words }), answers(500, { detail: words }), cuts, hangs]) {
    fake.next('POST /v1/models/acme/painter/predictions', respond)
    failures.push((await engine.run(image, run())) as NotMade)
  }
  for (const state of [{ status: 'failed', error: words }, { status: 'failed', error: `NSFW ${words}` }, { status: 'succeeded', output: `http://10.0.0.1/${REPLICATE_TOKEN}` }] as const) {
    fake.states = [state]
    failures.push((await engine.run(image, run())) as NotMade)
  }
  fake.next('GET /v1/predictions/*', (response) => json(response, 403, { detail: words }))
  failures.push((await engine.run(image, run())) as NotMade)
  for (const { cause, ...shown } of failures) {
    t.equal(shown.message, TASK_ERRORS[shown.code])
    t.notMatch(JSON.stringify(shown), /r8_|127\.0\.0\.1|10\.0\.0\.1|acme|painter|replicate/i)
    t.notMatch(causes(cause), REPLICATE_TOKEN)
  }
})

function causes(cause: unknown): string {
  return cause instanceof Error ? `${cause.stack} ${JSON.stringify(cause)} ${causes(cause.cause)}` : String(cause)
}
