/** The local engine: it keeps the contract of every engine, offers what can run here, and leaves no files. */
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { Engine, EngineRequest, Input } from '../../../src/backends/engines/engine.ts'
import { missingOperations, openLocalImage } from '../../../engines/image/image-engine.ts'
import { readModels } from '../../../engines/image/models.ts'
import { openLocal } from '../../../src/backends/engines/local/local.ts'
import { blankCanvas } from '../../../src/backends/engines/painter/canvas.ts'
import { png } from '../../../src/backends/engines/preview/png-encoder.ts'
import { mediaInfo } from '../../../src/domain/media-info.ts'
import { enginePromises } from '../../contracts/engine.ts'
import { FILM, IMAGE, SONG } from '../../contracts/operations/sources.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { LIMITS, runControl } from '../../fakes/engine.ts'
import { withoutFfmpeg } from './ffmpeg-media.ts'

const input = (contentType: string, content: Buffer): Input => ({
  role: 'media',
  contentType,
  bytes: content.length,
  async *read() {
    yield content
  },
})

const corner = blankCanvas(40, 30)
for (let y = 0; y < 4; y++) corner.rgb.fill(255, y * 120, y * 120 + 12)
const WHITE_CORNER = Buffer.from(png(corner))
const picture = input('image/png', IMAGE)
const INPUTS: Record<string, Input[]> = {
  trim: [input('video/mp4', FILM)],
  merge: [input('video/mp4', FILM), input('video/mp4', FILM)],
  background_remove: [picture],
  upscale: [picture],
  inpaint: [picture, { ...input('image/png', WHITE_CORNER), role: 'mask' }],
}
const trim: EngineRequest = { kind: 'trim', startMs: 100, endMs: 300, mode: 'accurate', format: 'mp4' }
const merge: EngineRequest = { kind: 'merge', transition: 'none', fit: 'contain', format: 'mp4' }
const images: EngineRequest[] = [
  { kind: 'background_remove', background: 'transparent', crop: false, format: 'png' },
  { kind: 'upscale', scale: 2, format: 'jpeg' },
  { kind: 'inpaint', prompt: 'x', seed: null, growMask: 1, format: 'webp' },
]
/** A reason to skip, or false. */
const withoutPackages = Object.values(missingOperations(readModels({}).models))[0] ?? false
const inputsOf = ({ kind }: EngineRequest): Input[] => INPUTS[kind] ?? []

async function opened(t: Test, options = {}, open = openLocal): Promise<{ engine: Engine; scratch: string }> {
  const scratch = await mkdtemp(join(tmpdir(), 'tollgate-'))
  const engine = await open('local', { scratch, ...options })
  t.teardown(async () => {
    await engine.close()
    await rm(scratch, { recursive: true })
  })
  return { engine, scratch }
}

t.test('the contract, of films', { skip: withoutFfmpeg }, (t) => runContract(t, enginePromises, async (t) => ({ ...(await opened(t)), requests: [trim, merge], inputsOf })))

t.test('the contract, of pictures', { skip: withoutPackages }, (t) =>
  runContract(t, enginePromises, async (t) => ({ ...(await opened(t, {}, openLocalImage)), requests: images, inputsOf }), {
    'the same prompt and seed give the same bytes, another seed gives others': 'inpainting of so small a hole is the same whatever the seed',
  }))

t.test('a picture whose result would be too large is not made, with the size in the details, and leaves no file', { skip: withoutPackages }, async (t) => {
  const { engine, scratch } = await opened(t, {}, openLocalImage)
  const large = await engine.run({ kind: 'upscale', scale: 4, format: 'png' }, runControl({ inputs: [picture], limits: { ...LIMITS, pixels: 10_000 } }))
  t.match(large, { outcome: 'failed', code: 'result_too_large', retryable: false, details: { found: { width: Number, height: Number }, limit: { megapixels: 0.01 } } })
  t.same(await readdir(scratch), [])
})

t.test('a result is measured, and its scratch folder is gone before it is read', { skip: withoutFfmpeg }, async (t) => {
  const { engine, scratch } = await opened(t)
  const made = await engine.run(trim, runControl({ inputs: inputsOf(trim) }))
  if (made.outcome !== 'made') throw new Error(made.code, { cause: made.cause })
  t.same(await readdir(scratch), [])
  const bytes = Buffer.concat(await Array.fromAsync(made.body as AsyncIterable<Uint8Array>))
  t.match(mediaInfo(bytes, bytes.length), { contentType: 'video/mp4', width: 64, height: 48 })
  t.match(made, { contentType: 'video/mp4', facts: { width: 64, height: 48 }, used: { Job: 1000, Second: made.facts.durationMs, Megapixel: 4 } })
})

t.test('a run that fails or is aborted leaves no file', { skip: withoutFfmpeg }, async (t) => {
  const { engine, scratch } = await opened(t)
  const broken = await engine.run(trim, runControl({ inputs: [input('video/mp4', FILM.subarray(0, 300))] }))
  t.match(broken, { outcome: 'failed', code: 'unsupported_input', retryable: false })
  t.match(await engine.run({ kind: 'trim', startMs: 5000, endMs: null, mode: 'fast', format: 'mp4' }, runControl({ inputs: inputsOf(trim) })), { code: 'start_past_end' })
  const controller = new AbortController()
  const run = engine.run(merge, runControl({ inputs: [input('video/mp4', FILM), input('audio/wav', SONG)], signal: controller.signal }))
  controller.abort(new Error('canceled'))
  await t.rejects(run, { message: 'canceled' })
  t.same(await readdir(scratch), [])
})

t.test('without ffmpeg exactly trim and merge are off, with a sentence for the operator', async (t) => {
  const { engine } = await opened(t, { ffmpeg: t.testdir() })
  t.same([engine.offers['trim'], engine.offers['merge']], [undefined, undefined])
  t.match(engine.missing, { trim: /^ffmpeg is not installed/, merge: /^ffmpeg is not installed/ })
  t.match(await engine.run(trim, runControl({ inputs: inputsOf(trim) })), { outcome: 'failed', code: 'not_supported', retryable: false })
})

t.test('options that make no sense are refused', async (t) => {
  for (const [options, message] of [[{ speed: 1 }, /no option speed/], [{ scratch: 'here' }, /scratch must be an absolute path/], [{ ffmpeg: 7 }, /ffmpeg must be an absolute path/]] as const) {
    await t.rejects(openLocal('local', options), message)
  }
  await t.rejects(openLocalImage('local-image', { speed: 1 }), /no option speed/)
  await t.rejects(openLocalImage('local-image', { scratch: 'here' }), /scratch must be an absolute path/)
})
