/** The openai engine against a server that follows the published API: its requests, the outcome of each answer, and that no job is paid twice. */
import { readdirSync, readlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { NotMade, Engine, EngineRequest } from '../../../src/backends/engines/engine.ts'
import { mediaInfo } from '../../../src/domain/media-info.ts'
import { imageSize, ordered, videoSize } from '../../../src/backends/engines/openai/model-traits.ts'
import { openSpool } from '../../../src/backends/engines/provider/content.ts'
import { openaiEngines } from '../../../src/backends/engines/openai/openai.ts'
import type { GenerationRequest } from '../../../src/domain/media-generations.ts'
import { TASK_ERRORS } from '../../../src/domain/task.ts'
import { enginePromises } from '../../contracts/engine.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { OPENAI_KEY, openaiError, openOpenai, type FakeOpenai } from '../../fakes/openai.ts'
import { answers, cuts, fileOf, formOf, hangs, json, redirects, sends, type Respond } from '../../fakes/provider.ts'
import { mp4, png, wav } from './media-samples.ts'
import { bytesOf, fakeOutside, input, runOf, type FakeOutside } from './provider-run.ts'

const image: GenerationRequest = { kind: 'image', prompt: 'a lighthouse', width: 1024, height: 1024, durationMs: null, seed: null, format: 'png' }
const video: GenerationRequest = { kind: 'video', prompt: 'waves', width: 640, height: 360, durationMs: 4000, seed: null, format: 'mp4' }
const music: GenerationRequest = { kind: 'music', prompt: 'a slow waltz', width: null, height: null, durationMs: 2000, seed: 7, format: 'wav' }
const edit = { kind: 'ai_edit', prompt: 'at night', strength: null, seed: null, format: 'png' } as const
const inpaint = { kind: 'inpaint', prompt: 'a boat', seed: null, growMask: 0, format: 'png' } as const

type Place = { fake: FakeOpenai; engine: Engine; outside: FakeOutside }

async function open(t: Test, options: Record<string, unknown> = {}, scratchFolder = tmpdir()): Promise<Place> {
  const [fake, outside] = [await openOpenai(t), fakeOutside({ scratchFolder })]
  const engine = await openaiEngines(outside)('images', { baseUrl: fake.url, apiKey: OPENAI_KEY, ...options })
  t.teardown(() => engine.close())
  return { fake, engine, outside }
}

const everything = { offers: { image: {}, ai_edit: {}, inpaint: {}, video: {}, music: {} } }

t.test('the contract', (t) =>
  runContract(
    t,
    enginePromises,
    async (t) => {
      const { engine } = await open(t, everything)
      const limits = runOf().limits
      return { engine: { ...engine, quote: (request) => engine.quote(request, limits), run: (request, control) => engine.run(request, runOf(control)) }, requests: [{ ...image, width: 96, height: 64 }, video, music] }
    },
    { 'the same prompt and seed give the same bytes, another seed gives others': 'what a provider makes of a seed is its own' },
  ))

t.test('a GPT image model gets its own parameters, others get those of the classic API', async (t) => {
  const { fake, engine } = await open(t)
  const sent = async (model: string | null, request: GenerationRequest = image) => {
    t.equal((await engine.run(request, runOf({ model }))).outcome, 'made', String(model))
    return JSON.parse(fake.received.at(-1)?.body.toString() ?? '') as unknown
  }
  t.same(await sent('gpt-image-1.5', { ...image, width: 1600, height: 900, seed: 5 }), { model: 'gpt-image-1.5', size: '1536x1024', output_format: 'png', prompt: 'a lighthouse' })
  t.same(await sent('dall-e-3', { ...image, width: 900, height: 1600, seed: 5 }), { model: 'dall-e-3', size: '1024x1792', response_format: 'b64_json', prompt: 'a lighthouse' })
  t.same(await sent('qwen-image', { ...image, width: 640, height: 360, seed: 5 }), { model: 'qwen-image', size: '640x360', response_format: 'b64_json', seed: 5, prompt: 'a lighthouse' })
  t.same(await sent(null), { size: '1024x1024', response_format: 'b64_json', prompt: 'a lighthouse' })
  t.ok(fake.received.every(({ headers }) => headers['idempotency-key'] === '0190-task:1' && headers['accept-encoding'] === 'identity'))
})

t.test('the size is the nearest that the model takes within the route, else as given', async (t) => {
  const { limits } = runOf()
  const cases: [string | null, [number, number], [number, number] | null, number?][] = [
    ['gpt-image-1', [1920, 1080], [1536, 1024]],
    ['gpt-image-1', [500, 900], [1024, 1536]],
    ['gpt-image-1-mini-2025-10-06', [512, 512], [1024, 1024]],
    ['chatgpt-image-latest', [512, 512], [1024, 1024]],
    ['gpt-image-1', [1920, 1080], [1024, 1024], 1_200_000],
    ['gpt-image-1', [512, 512], null, 500_000],
    ['dall-e-2', [300, 300], [256, 256]],
    ['dall-e-3', [1600, 900], [1792, 1024]],
    ['gpt-image-2', [1536, 864], [1536, 864]],
    ['gpt-image-2', [1000, 1000], [1008, 1008]],
    ['gpt-image-2.5-flare', [256, 256], [816, 816]],
    ['gpt-image-2', [8000, 4500], [3840, 2160]],
    ['gpt-image-2', [256, 256], null, 300_000],
    ['flux', [333, 777], [333, 777]],
    [null, [64, 64], [64, 64]],
  ]
  for (const [model, [width, height], expected, pixels = limits.pixels] of cases) {
    const size = imageSize(model, { width, height }, { ...limits, pixels })
    t.same(size && [size.width, size.height], expected, `${model} ${width}x${height}`)
  }
  for (const [width, height] of [[9000, 100], [100, 9000], [1, 1], [701, 1999]] as const) {
    const { width: w = 0, height: h = 0 } = imageSize('gpt-image-2', { width, height }, limits) ?? {}
    t.ok(w % 16 === 0 && h % 16 === 0 && w / h <= 3 && h / w <= 3 && Math.max(w, h) <= 3840 && w * h >= 655_360 && w * h <= 8_294_400, `${width}x${height} → ${w}x${h}`)
  }
  t.same(videoSize('sora-2', { width: 640, height: 360 }, limits), { width: 1280, height: 720 })
  t.same(videoSize('wan-2', { width: 640, height: 360 }, limits), { width: 640, height: 360 })
  const length = (model: string, durationMs: number, most = limits.durationMs) => ordered({ ...video, durationMs }, model, { ...limits, durationMs: most })?.durationMs
  t.same([length('sora-2', 5000), length('sora-2', 100), length('sora-2', 7900, 7900), length('wan-2', 5400), length('wan-2', 100), length('wan-2', 5700, 5700)], [4000, 4000, 4000, 5000, 1000, 5000])
  t.same([length('sora-2', 3000, 3000), length('wan-2', 500, 500)], [undefined, undefined], 'none that is as short as the limits')
})

t.test('a picture may come as a URL; it is fetched without the key when it lies elsewhere, and measured', async (t) => {
  const { fake, engine } = await open(t)
  fake.asUrls = true
  const made = await engine.run({ ...image, width: 8, height: 8 }, runOf())
  t.match(made, { outcome: 'made', contentType: 'image/png', facts: { width: 8, height: 8, durationMs: null }, used: { Job: 1000, Second: 0, Megapixel: 1 } })
  t.same(await bytesOf(made), png(8, 8))

  const elsewhere = await openOpenai(t)
  const other = elsewhere.origin.replace('127.0.0.1', 'localhost')
  fake.next('POST /v1/images/generations', answers(200, { data: [{ url: `${other}/results/a.png` }] }))
  t.match(await engine.run(image, runOf()), { code: 'provider_error', retryable: false }, 'a host that is not in resultHosts')
  const { engine: wider } = await open(t, { baseUrl: fake.url, resultHosts: ['localhost'] })
  fake.next('POST /v1/images/generations', answers(200, { data: [{ url: `${other}/results/a.png` }] }))
  t.equal((await wider.run(image, runOf())).outcome, 'made')
  t.same(elsewhere.received.map(({ headers }) => headers.authorization), [undefined])
})

t.test('facts and amounts are measured from the bytes, not taken from the answer', async (t) => {
  const { fake, engine } = await open(t)
  fake.next('POST /v1/images/generations', answers(200, { size: '9999x9999', data: [{ b64_json: png(300, 200).toString('base64') }] }))
  t.match(await engine.run(image, runOf()), { facts: { width: 300, height: 200, durationMs: null }, used: { Job: 1000, Second: 0, Megapixel: 60 } })
  t.same(engine.quote(image, runOf().limits), { Job: 1000, Second: 0, Megapixel: 1049 })
  t.same(engine.quote({ ...image, width: 64, height: 64 }, runOf().limits, 'gpt-image-1'), { Job: 1000, Second: 0, Megapixel: 1049 }, 'the size that is ordered')
  t.same(engine.quote({ ...video, width: 640, height: 360, durationMs: 100 }, runOf().limits, 'sora-2'), { Job: 1000, Second: 4000, Megapixel: 922 }, 'the length that is ordered')
  t.same(engine.quote(edit, { pixels: 2_000_500, durationMs: 9000, bytes: 1 }), { Job: 1000, Second: 0, Megapixel: 2001 })
})

t.test('a result that is no picture, has another format or exceeds the limits is not delivered', async (t) => {
  const { fake, engine } = await open(t)
  const run = async (bytes: Uint8Array, limits = runOf().limits): Promise<NotMade> => {
    fake.next('POST /v1/images/generations', answers(200, { data: [{ b64_json: Buffer.from(bytes).toString('base64') }] }))
    return (await engine.run(image, runOf({ limits }))) as NotMade
  }
  t.match(await run(Buffer.from('<!doctype html><title>sorry</title>')), { code: 'provider_error', retryable: true })
  t.match(await run(wav(10)), { code: 'provider_error', retryable: false, cause: /audio\/wav where png/ })
  t.match(await run(png(40, 40), { ...runOf().limits, pixels: 1500 }), { code: 'provider_error', retryable: false })
  t.match(await run(png(40, 40), { ...runOf().limits, bytes: 60 }), { code: 'provider_error', retryable: false })
  t.match(await run(png(40, 40).subarray(0, 20)), { code: 'provider_error', retryable: true }, 'cut off')
  t.match(await run(png(40, 40).subarray(0, -20)), { code: 'provider_error', retryable: true, cause: /broken/ }, 'cut off behind its header')
  fake.next('POST /v1/images/generations', (response) => void response.writeHead(200).end(Buffer.alloc(2_000_000, 97)))
  t.match(await engine.run(image, runOf({ limits: { ...runOf().limits, bytes: 1000 } })), { code: 'provider_error', retryable: false }, 'an endless answer is not read')
  fake.next('POST /v1/images/generations', answers(200, { data: [] }), answers(200, { data: [{}] }), (response) => void response.writeHead(200).end('{"data'))
  for (const what of ['no picture', 'an empty one', 'no JSON']) t.match(await engine.run(image, runOf()), { code: 'provider_error', retryable: true }, what)
})

t.test('each failure becomes its code, and is retried where it may pass by itself', async (t) => {
  const { fake, engine } = await open(t, { timeouts: { firstByteMs: 300 } })
  const rateLimit = openaiError('rate_limit_exceeded', 'Rate limit reached', 'requests')
  const cases: [string, Respond, string, boolean][] = [
    ['a rate limit', answers(429, rateLimit, { 'retry-after': '7' }), 'provider_error', true],
    ['an overloaded server', answers(503, openaiError(null, 'overloaded', 'server_error')), 'provider_error', true],
    ['an internal error', answers(500, { error: null }), 'provider_error', true],
    ['a gateway\'s time-out', answers(504, '<html>'), 'provider_timeout', true],
    ['a cut connection', cuts, 'provider_error', true],
    ['silence', hangs, 'provider_timeout', true],
    ['no credit left', answers(429, openaiError('insufficient_quota', 'You exceeded your current quota', 'insufficient_quota')), 'provider_error', false],
    ['a spent project', answers(429, openaiError('project_spend_limit_exceeded', 'spent', 'insufficient_quota')), 'provider_error', false],
    ['a refused prompt', answers(400, openaiError('moderation_blocked', 'Your request was rejected by the safety system.', 'image_generation_user_error')), 'provider_rejected', false],
    ['the policy of older models', answers(400, openaiError('content_policy_violation', 'Your request was rejected as a result of our safety system.')), 'provider_rejected', false],
    ['a wrong key', answers(401, openaiError('invalid_api_key', `Incorrect API key provided: ${OPENAI_KEY}`)), 'provider_error', false],
    ['a forbidden country', answers(403, openaiError('unsupported_country_region_territory', 'no')), 'provider_error', false],
    ['an unknown model', answers(404, openaiError('model_not_found', 'The model `gpt-image-9` does not exist')), 'provider_error', false],
    ['a parameter that is not taken', answers(400, openaiError('unknown_parameter', 'Unknown parameter')), 'provider_error', false],
    ['a redirect', redirects('http://169.254.169.254/'), 'provider_error', false],
  ]
  for (const [what, respond, code, retryable] of cases) {
    fake.next('POST /v1/images/generations', respond)
    t.match(await engine.run(image, runOf({ model: 'gpt-image-1' })), { outcome: 'failed', code, retryable }, what)
  }
  t.equal(fake.received.length, cases.length, 'each was one request, and none was followed')
})

t.test('an edit sends the picture, and a mask that marks the edit by transparent pixels', async (t) => {
  const { fake, engine } = await open(t)
  const picture = png(60, 40)
  t.match(await engine.run(edit, runOf({ model: 'gpt-image-1', inputs: [input('media', picture)] })), { outcome: 'made' })
  const bare = await formOf(fake.received[0]!)
  t.same([...bare.keys()].sort(), ['image', 'model', 'output_format', 'prompt', 'size'])
  t.match([bare.get('prompt'), bare.get('size'), await fileOf(bare, 'image')], ['at night', '1536x1024', { type: 'image/png', bytes: picture }])

  const drawn = png(60, 40, { alpha: 255, paint: (x) => (x < 30 ? [0, 0, 0, 0] : null) })
  t.match(await engine.run(inpaint, runOf({ inputs: [input('media', picture), input('mask', drawn)] })), { outcome: 'made' })
  const masked = await formOf(fake.received[1]!)
  t.same((await fileOf(masked, 'mask'))?.bytes, drawn, 'one in the provider\'s form passes as it is')
  t.equal(masked.get('size'), '60x40')
})

t.test('an edit is quoted by the sizes that its model makes, whatever size its source has', async (t) => {
  const { engine } = await open(t)
  const { limits: max } = runOf()
  const tiny = [input('media', png(16, 16)), input('mask', png(16, 16, { alpha: 0 }))]
  const quoted = (model: string, pixels = 256, most = max.pixels) => engine.quote(inpaint, { ...max, pixels }, model, { ...max, pixels: most }).Megapixel
  for (const model of ['gpt-image-1.5', 'gpt-image-2', 'flux']) {
    const made = await engine.run(inpaint, runOf({ model, inputs: tiny }))
    t.ok(made.outcome === 'made' && made.used.Megapixel <= quoted(model), model)
  }
  t.same([quoted('gpt-image-1.5'), quoted('gpt-image-1.5', 256, 1_200_000), quoted('gpt-image-1.5', 256, 500_000), quoted('flux')], [1573, 1049, 0, 1])
  t.equal(engine.quote(edit, max, 'gpt-image-1').Megapixel, 1573, 'not by the largest of the route')
  for (let width = 16; width <= 8000; width = Math.ceil(width * 1.13)) {
    for (let height = 16; height <= 8000; height = Math.ceil(height * 1.17)) {
      const size = imageSize('gpt-image-2', { width, height }, max)
      const most = quoted('gpt-image-2', Math.min(width * height, max.pixels))
      if (!size || Math.ceil((size.width * size.height) / 1000) > most) t.fail(`${width}x${height}: ${size?.width}x${size?.height} is more than ${most}`)
    }
  }
})

t.test('an input that the provider cannot take is the input\'s fault', async (t) => {
  const { fake, engine } = await open(t)
  const picture = input('media', png(60, 40))
  const fault = async (inputs: ReturnType<typeof input>[], limits = runOf().limits) => ((await engine.run(inpaint, runOf({ inputs, limits }))) as NotMade).code
  t.equal(await fault([picture]), 'unsupported_input', 'no mask')
  t.equal(await fault([picture, input('mask', png(40, 60))]), 'mask_mismatch', 'a mask of another aspect ratio')
  t.equal(await fault([picture, input('mask', wav(10))]), 'unsupported_input', 'a mask that is no picture')
  t.equal(await fault([input('media', mp4(64, 48, 1000)), input('mask', png(64, 48))]), 'unsupported_input', 'a film')
  t.equal(await fault([input('media', Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>')), input('mask', png(6, 4))]), 'unsupported_input', 'a drawing')
  t.equal(await fault([picture, input('mask', png(60, 40))], { ...runOf().limits, pixels: 2000 }), 'input_too_large')
  t.equal(fake.received.length, 0, 'nothing was sent')
  for (const [code, expected] of [['invalid_image_file', 'unsupported_input'], ['image_too_large', 'input_too_large']] as const) {
    fake.next('POST /v1/images/edits', answers(400, openaiError(code, 'no')))
    t.match(await engine.run(edit, runOf({ inputs: [picture] })), { code: expected, retryable: false })
  }
})

t.test('a video is a job: remembered before it is polled, then streamed and measured', async (t) => {
  const { fake, engine, outside } = await open(t)
  fake.polls = 3
  const order: string[] = []
  const run = runOf({ model: 'sora-2' })
  run.job.remember = async (id) => void order.push(`remembered ${id} after ${fake.received.length} request`)
  const made = await engine.run(video, run)
  t.same(order, ['remembered video_1 after 1 request'])
  t.match(made, { outcome: 'made', contentType: 'video/mp4', facts: { width: 1280, height: 720, durationMs: 4000 }, used: { Job: 1000, Second: 4000, Megapixel: 922 } })
  t.equal(mediaInfo(await bytesOf(made), null)?.contentType, 'video/mp4')
  t.same(run.percents, [0, 25, 50, 75], 'the progress of the provider')
  t.same(outside.pauses, [375, 563, 844, 1266], 'pauses grow, by chance within their upper half')
  t.same(Object.fromEntries(await formOf(fake.received[0]!)), { model: 'sora-2', prompt: 'waves', seconds: '4', size: '1280x720' })
})

t.test('a film of many megabytes is delivered whole without lying in memory as a whole', async (t) => {
  const folder = t.testdir()
  const { fake, engine } = await open(t, {}, folder)
  const film = mp4(640, 360, 4000, { bytes: 30_000_000, index: 'end' })
  fake.next('GET /v1/videos/*/content', sends(film, 'video/mp4'))
  const made = await engine.run(video, runOf())
  t.match(made, { outcome: 'made', facts: { width: 640, height: 360, durationMs: 4000 } })
  t.notOk(made.outcome === 'made' && made.body instanceof Uint8Array)
  t.same([readdirSync(folder), openFiles(folder)], [[], process.platform === 'linux' ? 1 : 0], 'its file has no name, so that no crash leaves it behind')
  for (const time of ['first', 'second']) t.ok((await bytesOf(made)).equals(film), `it is read a ${time} time`)
  if (made.outcome === 'made') for (const _ of [1, 2]) await made.release?.()
  t.equal(openFiles(folder), 0, 'released, which twice is harmless')
  fake.next('GET /v1/videos/*/content', sends(film, 'video/mp4'))
  t.match(await engine.run(video, runOf({ limits: { ...runOf().limits, bytes: 20_000_000 } })), { code: 'provider_error', retryable: false }, 'above the limit it is cut off')
  fake.next('GET /v1/videos/*/content', (response) => void response.writeHead(200, { 'content-length': film.length }).write(film.subarray(0, 9_000_000), () => response.destroy()))
  t.match(await engine.run(video, runOf()), { code: 'provider_error', retryable: true, keepsJob: true }, 'cut off by the provider')
  const aborted = new AbortController()
  const begun = engine.run(video, runOf({ signal: aborted.signal }))
  fake.next('GET /v1/videos/*/content', (response) => void response.writeHead(200).write(film.subarray(0, 9_000_000), () => aborted.abort(new Error('cut'))))
  await t.rejects(begun, { message: 'cut' })
  await engine.close()
  t.equal(openFiles(folder), 0)
})

t.test('a result that is dropped while a write is under way leaves no file open', async (t) => {
  const folder = t.testdir()
  const { sink, drop } = openSpool(folder, 30_000_000)
  const written = new Promise((resolve) => sink.write(Buffer.alloc(2_000_000), resolve))
  sink.destroy()
  await drop()
  await written
  t.equal(openFiles(folder), 0)
})

/** Files of a folder that this process has open though they have no name there; none where that cannot be seen. */
function openFiles(folder: string): number {
  if (process.platform !== 'linux') return 0
  return readdirSync('/proc/self/fd').filter((name) => linkOf(name).startsWith(join(folder, 'tollgate-'))).length
}

function linkOf(name: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${name}`)
  } catch {
    return ''
  }
}

t.test('a failed poll is repeated after Retry-After, for a bounded time', async (t) => {
  const { fake, engine, outside } = await open(t)
  fake.next('GET /v1/videos/*', answers(429, {}, { 'retry-after': '20' }), answers(503, {}, { 'retry-after': 'Thu, 01 Oct 2026 00:01:00 GMT' }), cuts, answers(200, '?'))
  t.equal((await engine.run(video, runOf())).outcome, 'made')
  t.equal(outside.pauses[1], 20_000)
  t.ok((outside.pauses[2] ?? 0) > 30_000, 'a date as well')
  t.equal(fake.to('POST /v1/videos').length, 1)

  fake.next('GET /v1/videos/*', ...Array<Respond>(60).fill(answers(500)))
  const failed = await engine.run(video, runOf())
  t.match(failed, { code: 'provider_error', retryable: true })
  await engine.close()
  t.equal(fake.to('DELETE /v1/videos/*').length, 1, 'the job is given up there as well')
})

t.test('a run resumes the job of an earlier one and pays for no second', async (t) => {
  const { fake, engine } = await open(t)
  fake.videos.set('video_7', { id: 'video_7', polls: 0, status: 'in_progress', error: null, fields: { size: '640x360', seconds: '4' } })
  const run = runOf()
  const made = await engine.run(video, { ...run, job: { ...run.job, id: 'video_7' } })
  t.equal(made.outcome, 'made')
  t.same([fake.to('POST /v1/videos').length, run.remembered], [0, []])
  const anew = await engine.run(video, { ...run, job: { ...run.job, id: 'video_../8?x' } })
  t.equal(anew.outcome, 'made')
  t.same([fake.to('POST /v1/videos').length, run.remembered], [1, ['video_2']], 'one that is unknown by now starts anew')
})

t.test('a failed job becomes its code', async (t) => {
  const { fake, engine } = await open(t)
  const fails = (code: string): Respond => (response, { path }) => json(response, 200, { id: path.split('/').at(-1), object: 'video', status: 'failed', progress: 0, error: { code, message: 'words' } })
  fake.next('GET /v1/videos/*', fails('moderation_blocked'), fails('video_generation_failed'))
  t.match(await engine.run(video, runOf()), { code: 'provider_rejected', retryable: false })
  t.match(await engine.run(video, runOf()), { code: 'provider_error', retryable: true })
  fake.next('GET /v1/videos/*/content', answers(404, openaiError('not_found', 'expired')))
  t.match(await engine.run(video, runOf()), { code: 'provider_error', retryable: true, keepsJob: undefined }, 'content that has expired is made anew')
  fake.next('GET /v1/videos/*/content', answers(503), answers(504), cuts)
  for (const code of ['provider_error', 'provider_timeout', 'provider_error']) t.match(await engine.run(video, runOf()), { code, retryable: true, keepsJob: true }, 'content that could not be fetched this time is not')
  fake.next('GET /v1/videos/*', answers(401, openaiError('invalid_api_key', 'revoked')))
  t.match(await engine.run(video, runOf()), { code: 'provider_error', retryable: false }, 'a key that was revoked meanwhile')
})

t.test('an aborted run cancels its job when the task has ended, and leaves it when the next run resumes it', async (t) => {
  const canceled = Object.assign(new Error('cut'), { why: 'canceled' })
  const lost = Object.assign(new Error('cut'), { why: 'lost' })
  for (const [reason, deletions] of [[canceled, 1], [new DOMException('late', 'TimeoutError'), 1], [lost, 0], [Object.assign(new Error('cut'), { why: 'stopping' }), 0]] as const) {
    const { fake, engine, outside } = await open(t)
    const controller = new AbortController()
    outside.onPause = (count) => count === 2 && controller.abort(reason)
    fake.polls = 9
    await t.rejects(engine.run(video, runOf({ signal: controller.signal })), reason)
    await engine.close()
    t.equal(fake.to('DELETE /v1/videos/*').length, deletions, (reason as { why?: string }).why ?? reason.name)
  }
})

t.test('a job that was not remembered is canceled when the run is aborted', async (t) => {
  const { fake, engine } = await open(t)
  const controller = new AbortController()
  const reason = Object.assign(new Error('cut'), { why: 'lost' })
  const { promise, resolve } = Promise.withResolvers<void>()
  fake.next('POST /v1/videos', async (response) => {
    await promise
    fake.videos.set('video_9', { id: 'video_9', polls: 0, status: 'queued', error: null, fields: {} })
    json(response, 200, { id: 'video_9', status: 'queued' })
  })
  const run = engine.run(video, runOf({ signal: controller.signal }))
  await fake.arrived('POST /v1/videos')
  controller.abort(reason)
  await t.rejects(run, reason, 'the run does not wait for the answer')
  resolve()
  await fake.arrived('DELETE /v1/videos/*')

  const forgetful = runOf()
  forgetful.job.remember = async () => Promise.reject(new Error('the lease is lost'))
  await t.rejects(engine.run(video, forgetful), { message: 'the lease is lost' })
  await engine.close()
  t.equal(fake.to('DELETE /v1/videos/*').length, 2, 'also one that could not be written down')
  t.equal(fake.to('GET /v1/videos/*').length, 0, 'and that is never polled')
})

t.test('content that lies elsewhere is fetched without the key', async (t) => {
  const { fake, engine } = await open(t, { resultHosts: ['127.0.0.1'] })
  const store = await openOpenai(t)
  store.next('GET /results/film.mp4', sends(mp4(640, 360, 4000), 'application/octet-stream'))
  fake.next('GET /v1/videos/*/content', redirects(`${store.origin}/results/film.mp4`))
  t.equal((await engine.run(video, runOf())).outcome, 'made')
  t.same(store.received.map(({ headers }) => headers.authorization), [undefined])
  fake.next('GET /v1/videos/*/content', redirects('http://169.254.169.254/latest/meta-data'))
  t.match(await engine.run(video, runOf()), { code: 'provider_error', retryable: false }, 'never inwards')
})

t.test('music by audio/generate has its length, by audio/speech that of the words', async (t) => {
  const { fake, engine } = await open(t, everything)
  t.match(await engine.run(music, runOf({ model: 'stable-audio' })), { outcome: 'made', contentType: 'audio/wav', facts: { width: null, height: null, durationMs: 2000 }, used: { Second: 2000 } })
  t.same(JSON.parse(fake.received[0]!.body.toString()), { model: 'stable-audio', input: 'a slow waltz', response_format: 'wav', audio_length: 2, seed: 7 })
  const { limits } = runOf()
  t.equal(engine.quote(music, limits, 'stable-audio').Second, 2000)
  const { fake: speaker, engine: speech } = await open(t, { offers: { music: { endpoint: 'audio/speech', voice: 'marin' } } })
  t.match(await speech.run(music, runOf({ model: 'tts-1' })), { facts: { durationMs: 1200 }, used: { Second: 1200 } })
  t.same(JSON.parse(speaker.received[0]!.body.toString()), { model: 'tts-1', input: 'a slow waltz', response_format: 'wav', voice: 'marin' })
  const held = (prompt: string, durationMs = limits.durationMs) => speech.quote({ ...music, prompt }, { ...limits, durationMs }, 'tts-1').Second
  t.same([held('a slow waltz'), held('1234'), held('你好'), held('a slow waltz', 2000)], [2200, 2600, 1800, 2000], 'held by its words, whatever length was requested')
  speaker.next('POST /v1/audio/speech', answers(400, openaiError('content_policy_violation', 'no')))
  t.match(await speech.run(music, runOf({ model: 'tts-1' })), { code: 'provider_rejected' })
  t.match(await speech.run(image, runOf()), { code: 'not_supported' })
})

t.test('wrong options are refused in one sentence without the key', async (t) => {
  const outside = fakeOutside({ keys: { env: (name) => (name === 'THE_KEY' ? OPENAI_KEY : undefined), readFile: () => Promise.reject(new Error()) as never } })
  const cases: [Record<string, unknown>, string | RegExp][] = [
    [{}, 'apiKey, apiKeyFile or apiKeyEnv is missing'],
    [{ apiKeyEnv: 'NOPE' }, 'apiKeyEnv names NOPE, which is not set'],
    [{ apiKeyEnv: 'THE_KEY', apiKey: 'x' }, 'apiKeyEnv cannot be combined with apiKey'],
    [{ apiKey: 'two words' }, 'apiKey must be a key of visible ASCII characters'],
    [{ apiKey: 'x', baseUrl: 'ftp://a' }, 'baseUrl must be an http or https address'],
    [{ apiKey: 'x', baseUrl: 'http://a:b@c/v1' }, 'baseUrl must have no user, password, query or fragment'],
    [{ apiKey: 'x', headers: { Host: 'a' } }, 'headers must not set Host'],
    [{ apiKey: 'x', headers: { 'a b': 'c' } }, 'headers has an invalid header: "a b"'],
    [{ apiKey: 'x', colour: 1 }, 'colour is not a setting'],
    [{ apiKey: 'x', offers: {} }, /^offers must/],
    [{ apiKey: 'x', offers: { upscale: {} } }, 'offers.upscale is not a setting'],
    [{ apiKey: 'x', offers: { image: { formats: ['tiff'] } } }, /^offers\.image\.formats\[0\] must be/],
    [{ apiKey: 'x', timeouts: { idleMs: 0 } }, /^timeouts\.idleMs must be/],
    [{ apiKey: 'x', resultHosts: ['http://a'] }, /^resultHosts\[0\]/],
  ]
  for (const [options, message] of cases) await t.rejects(openaiEngines(outside)('images', options), { message }, JSON.stringify(options))
  const engine = await openaiEngines(outside)('images', { apiKeyEnv: 'THE_KEY' })
  t.same(Object.keys(engine.offers), ['image', 'ai_edit', 'inpaint', 'video'])
  t.same(engine.offers['image'], { formats: ['png', 'jpeg', 'webp'] })
  t.same(outside.allowed, [[], []], 'the vendor\'s own addresses are public ones')
  await Promise.all([engine.close(), engine.close()])
})

t.test('a key in a file can be rotated', async (t) => {
  let key = 'old'
  const fake = await openOpenai(t)
  const outside = fakeOutside({ keys: { env: () => undefined, readFile: () => `${key}\n` } })
  const engine = await openaiEngines(outside)('images', { baseUrl: fake.url, apiKeyFile: 'key' })
  t.teardown(() => engine.close())
  t.match(await engine.run(image, runOf()), { code: 'provider_error' })
  key = OPENAI_KEY
  t.equal((await engine.run(image, runOf())).outcome, 'made')
})

t.test('no outcome names the provider, its host, the model or the key; the cause never holds the key', async (t) => {
  const { fake, engine } = await open(t, { ...everything, timeouts: { firstByteMs: 300 } })
  const words = `${OPENAI_KEY} at ${fake.origin} by gpt-image-1 of OpenAI`
  const responses: Respond[] = [
    answers(400, openaiError('moderation_blocked', words)),
    answers(401, openaiError('invalid_api_key', words)),
    answers(403, openaiError(null, words)),
    answers(429, openaiError(null, words)),
    answers(500, openaiError(null, words)),
    answers(200, { data: [{ url: 'http://169.254.169.254/' }] }),
    cuts,
    hangs,
  ]
  const requests: [string, EngineRequest][] = [['POST /v1/images/generations', image], ['POST /v1/images/edits', edit], ['POST /v1/videos', video], ['POST /v1/audio/generate', music]]
  for (const [route, request] of requests) {
    for (const respond of responses) {
      fake.next(route, respond)
      const failed = (await engine.run(request, runOf({ model: 'gpt-image-1', inputs: [input('media', png(64, 64))] }))) as NotMade
      t.equal(failed.outcome, 'failed')
      t.equal(failed.message, TASK_ERRORS[failed.code])
      const { cause, ...shown } = failed
      t.notMatch(JSON.stringify(shown), /sk-|127\.0\.0\.1|169\.254|gpt|openai/i)
      t.notMatch(causes(cause), OPENAI_KEY)
    }
  }
})

function causes(cause: unknown): string {
  return cause instanceof Error ? `${cause.stack} ${JSON.stringify(cause)} ${causes(cause.cause)}` : String(cause)
}

t.test('a film begins with the picture that was given', async (t) => {
  const { fake, engine } = await open(t)
  const picture = png(64, 48)
  t.match(await engine.run(video, runOf({ model: 'wan', inputs: [input('media', picture)] })), { outcome: 'made' })
  const form = await formOf(fake.to('POST /v1/videos')[0]!)
  t.match(await fileOf(form, 'input_reference'), { type: 'image/png', bytes: picture })
  const photograph = png(5000, 3000)
  const { limits } = runOf()
  t.match(await engine.run(video, runOf({ model: 'wan', limits: { ...limits, pixels: 1e6 }, inputs: [input('media', photograph)] })), { outcome: 'made' }, 'a photograph is larger than the film')
  t.match(await engine.run(video, runOf({ model: 'wan', limits: { ...limits, pixels: 1e6 }, inputs: [input('media', png(5000, 4000))] })), { code: 'input_too_large' })
  t.match(await engine.run(video, runOf({ model: 'wan', inputs: [input('media', Buffer.from('no picture'), 'image/png')] })), { outcome: 'failed', code: 'unsupported_input' })
})

t.test('compatible servers get a negative prompt, and several pictures in one request', async (t) => {
  const { fake, engine } = await open(t)
  const made = await engine.run({ ...image, n: 2, negativePrompt: 'people' }, runOf({ model: 'qwen-image', quality: 'best' }))
  t.match(JSON.parse(fake.received.at(-1)!.body.toString()), { n: 2, quality: 'best', negative_prompt: 'people' })
  t.match(made, { outcome: 'made', used: { Job: 2000 }, others: { length: 1 } })
  t.same([engine.options?.('image', 'qwen-image'), engine.options?.('image', 'dall-e-3'), engine.options?.('video', null), engine.options?.('music', null)], [['n', 'quality', 'negative_prompt'], ['quality'], ['image_url'], []])
})
