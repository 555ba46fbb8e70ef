/**
 * The fakes of providers serve the vendors' own clients, and the openai engine works with an independent mock server.
 * `npm run servers` installs them. The clients are outside of this package: what they give is `any`.
 */
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { openaiEngines } from '../../../src/backends/engines/openai/openai.ts'
import { OPENAI_KEY, openaiError, openOpenai } from '../../fakes/openai.ts'
import { answers } from '../../fakes/provider.ts'
import { openReplicate, problem, REPLICATE_TOKEN } from '../../fakes/replicate.ts'
import { need } from '../../servers/client.ts'
import { mp4, png, wav } from './media-samples.ts'
import { bytesOf, fakeOutside, input, runOf } from './provider-run.ts'

t.test('the OpenAI client gets every answer of the fake', async (t) => {
  const path = need(t, 'openai-node')
  if (path === null) return
  const { default: OpenAI, toFile, BadRequestError, RateLimitError, AuthenticationError } = await import(pathToFileURL(path).href)
  const fake = await openOpenai(t)
  const client = new OpenAI({ baseURL: fake.url, apiKey: OPENAI_KEY, maxRetries: 0 })
  const picture = await client.images.generate({ model: 'gpt-image-1', prompt: 'a lighthouse', size: '1536x1024', output_format: 'png' })
  t.same(Buffer.from(picture.data[0].b64_json, 'base64'), png(1536, 1024))

  const image = await toFile(png(64, 64), 'image.png', { type: 'image/png' })
  const mask = await toFile(png(64, 64, { alpha: 0 }), 'mask.png', { type: 'image/png' })
  const edited = await client.images.edit({ model: 'gpt-image-1', prompt: 'at night', image, mask })
  t.ok(edited.data[0].b64_json)
  await t.rejects(client.images.edit({ model: 'gpt-image-1', prompt: 'x', image, mask: await toFile(png(64, 64), 'mask.png', { type: 'image/png' }) }), { constructor: BadRequestError, code: 'invalid_mask_image_format' })

  const video = await client.videos.create({ model: 'sora-2', prompt: 'waves', seconds: '4', size: '1280x720' })
  t.match(video, { object: 'video', status: 'queued', progress: 0 })
  t.equal((await client.videos.retrieve(video.id)).status, 'in_progress')
  t.equal((await client.videos.retrieve(video.id)).status, 'completed')
  const content = await client.videos.downloadContent(video.id)
  t.same(Buffer.from(await content.arrayBuffer()), mp4(1280, 720, 4000, { index: 'end' }))
  t.match(await client.videos.delete(video.id), { deleted: true })

  const speech = await client.audio.speech.create({ model: 'tts-1', input: 'hello', voice: 'alloy', response_format: 'wav' })
  t.same(Buffer.from(await speech.arrayBuffer()), wav(1200))

  fake.next('POST /v1/images/generations', answers(400, openaiError('moderation_blocked', 'no', 'image_generation_user_error')), answers(429, openaiError('rate_limit_exceeded', 'slow down')))
  await t.rejects(client.images.generate({ prompt: 'x' }), { constructor: BadRequestError, code: 'moderation_blocked', type: 'image_generation_user_error' })
  await t.rejects(client.images.generate({ prompt: 'x' }), { constructor: RateLimitError, code: 'rate_limit_exceeded' })
  await t.rejects(new OpenAI({ baseURL: fake.url, apiKey: 'wrong', maxRetries: 0 }).images.generate({ prompt: 'x' }), { constructor: AuthenticationError, code: 'invalid_api_key' })
})

t.test('the Replicate client gets every answer of the fake', async (t) => {
  const path = need(t, 'replicate-node')
  if (path === null) return
  const { default: Replicate } = await import(pathToFileURL(path).href)
  const fake = await openReplicate(t)
  const client = new Replicate({ auth: REPLICATE_TOKEN, baseUrl: fake.url, useFileOutput: false })
  const output = await client.run('acme/painter', { input: { prompt: 'a lighthouse' }, wait: { mode: 'poll', interval: 1 } })
  t.same(output, [`${fake.origin}/delivery/out-0.png`])
  t.match([...fake.predictions.values()][0], { model: 'acme/painter', input: { prompt: 'a lighthouse' }, status: 'succeeded' })

  const version = '9dcd6d78e7c6560c340d916fe32e9f24aabfa331e5cce95fe31f77fb03121426'
  const prediction = await client.predictions.create({ version, input: { prompt: 'x' } })
  t.match(prediction, { status: 'starting', version })
  t.equal((await client.predictions.cancel(prediction.id)).status, 'canceled')
  const file = await client.files.create(Buffer.alloc(300_000, 7))
  t.match(file, { size: 300_000, urls: { get: `${fake.url}/files/${file.id}` } })
  fake.next('POST /v1/models/acme/painter/predictions', answers(422, problem(422, 'Input validation failed', '- input is wrong')))
  await t.rejects(client.predictions.create({ model: 'acme/painter', input: {} }), { message: /422.*Input validation failed/ })
})

t.test('the openai engine makes pictures, edits and speech with an independent mock server', async (t) => {
  const path = need(t, 'aimock')
  if (path === null) return
  const { LLMock } = await import(pathToFileURL(path).href)
  const mock = new LLMock({ port: 0, host: '127.0.0.1' })
  mock.onImage(/lighthouse/, { image: { b64Json: png(1024, 1024).toString('base64') } })
  mock.onImage(/night/, { image: { b64Json: png(64, 48).toString('base64') } })
  mock.onSpeech(/waltz/, { audio: wav(900).toString('base64'), format: 'wav' })
  mock.onVideo(/waves/, { video: { id: 'video_1', status: 'failed', error: 'no' } })
  const url = await mock.start()
  t.teardown(() => mock.stop())
  const engine = await openaiEngines(fakeOutside())('images', { baseUrl: `${url}/v1`, apiKey: OPENAI_KEY, offers: { image: {}, ai_edit: {}, video: {}, music: { endpoint: 'audio/speech' } } })
  t.teardown(() => engine.close())
  const prompt = { seed: null, durationMs: null, width: 1024, height: 1024 }
  const image = await engine.run({ kind: 'image', prompt: 'a lighthouse', ...prompt, format: 'png' }, runOf({ model: 'gpt-image-1' }))
  t.same(await bytesOf(image), png(1024, 1024))
  const edit = await engine.run({ kind: 'ai_edit', prompt: 'at night', strength: null, seed: null, format: 'png' }, runOf({ model: 'gpt-image-1', inputs: [input('media', png(64, 48))] }))
  t.match(edit, { outcome: 'made', facts: { width: 64, height: 48 } })
  const music = await engine.run({ kind: 'music', prompt: 'a slow waltz', ...prompt, width: null, height: null, durationMs: 900, format: 'wav' }, runOf({ model: 'tts-1' }))
  t.match(music, { outcome: 'made', facts: { durationMs: 900 } })
  const run = runOf({ model: 'sora-2' })
  t.match(await engine.run({ kind: 'video', prompt: 'waves', ...prompt, durationMs: 4000, format: 'mp4' }, run), { code: 'provider_error', retryable: true })
  t.same(run.remembered, ['video_1'])
})
