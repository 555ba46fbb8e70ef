/** The preview engine keeps the contract, and what it makes is what its name says: read here byte by byte, and by ffmpeg where that is installed. */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { crc32, inflateSync } from 'node:zlib'
import t from 'tap'
import { openPreview } from '../../../src/backends/engines/preview/preview.ts'
import { chromaAt, h264, lumaAt, nalUnit, pictureFor, type Picture } from '../../../src/backends/engines/preview/h264.ts'
import { tune } from '../../../src/backends/engines/preview/music.ts'
import { painted, scene } from '../../../src/backends/engines/painter/scene.ts'
import type { GenerationRequest } from '../../../src/domain/media-generations.ts'
import { enginePromises } from '../../contracts/engine.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { runControl } from '../../fakes/engine.ts'
import { boxes, readSps, type Box } from './mp4-reader.ts'

const small = { prompt: 'a lighthouse at dusk', seed: null, width: 64, height: 48 }
const image: GenerationRequest = { ...small, kind: 'image', durationMs: null, format: 'png' }
const video: GenerationRequest = { ...small, kind: 'video', width: 70, height: 50, durationMs: 550, format: 'mp4' }
const music: GenerationRequest = { ...small, kind: 'music', width: null, height: null, durationMs: 1500, format: 'wav' }

async function make(request: GenerationRequest): Promise<Buffer> {
  const engine = await openPreview('preview', {})
  const made = await engine.run(request, runControl())
  if (made.outcome !== 'made') throw new Error(made.code, { cause: made.cause })
  return Buffer.from(made.body as Uint8Array)
}

t.test('several pictures of a request differ, and are paid each', async (t) => {
  const engine = await openPreview('preview', {})
  const made = await engine.run({ ...image, n: 3 }, runControl())
  if (made.outcome !== 'made') throw new Error(made.code)
  const bodies = [made, ...(made.others ?? [])].map(({ body }) => Buffer.from(body as Uint8Array).toString('base64'))
  t.equal(new Set(bodies).size, 3)
  t.equal(bodies[0], (await make(image)).toString('base64'))
  t.same([made.used, engine.quote({ ...image, n: 3 }, runControl().limits)], [{ Job: 3000, Second: 0, Megapixel: 12 }, { Job: 3000, Second: 0, Megapixel: 12 }])
})

t.test('a film with more bytes than the route allows is not made', async (t) => {
  const engine = await openPreview('preview', {})
  const size = (await make(video)).length
  const run = (bytes: number) => engine.run(video, runControl({ limits: { ...runControl().limits, bytes } }))
  t.match([await run(size), await run(size - 1)], [{ outcome: 'made' }, { outcome: 'failed', code: 'result_too_large', retryable: false, details: { limit: { bytes: size - 1 } } }])
})

const hasFfmpeg = spawnSync('ffmpeg', ['-version']).status === 0

/** What ffmpeg decodes from a file, as raw samples; complaints of its decoders throw. */
function decoded(file: Buffer, ...args: string[]): Buffer {
  const { stdout, stderr } = spawnSync('ffmpeg', ['-v', 'error', '-i', '-', ...args, '-'], { input: file, maxBuffer: 2 ** 28 })
  if (stderr.length > 0) throw new Error(stderr.toString())
  return stdout
}

t.test('the contract', (t) =>
  runContract(t, enginePromises, async (t) => {
    const engine = await openPreview('preview', {})
    t.teardown(() => engine.close())
    return { engine, requests: [image, video, music] }
  }))

t.test('an option that it does not have is named', async (t) => {
  await t.rejects(openPreview('preview', { baseUrl: 'http://localhost' }), { message: 'type preview has no option baseUrl' })
})

t.test('the process does other work while it renders', async (t) => {
  let turns = 0
  let done = false
  const run = make({ ...image, width: 512, height: 512 }).finally(() => (done = true))
  while (!done) {
    await setImmediate()
    turns++
  }
  await run
  t.ok(turns > 100)
})

t.test('an image is a complete PNG in colour, of the requested size', async (t) => {
  const file = await make(image)
  t.equal(file.toString('latin1', 0, 8), '\x89PNG\r\n\x1a\n')
  const chunks = new Map<string, Buffer>()
  for (let at = 8; at < file.length; ) {
    const length = file.readUInt32BE(at)
    t.equal(file.readUInt32BE(at + 8 + length), crc32(file.subarray(at + 4, at + 8 + length)))
    chunks.set(file.toString('latin1', at + 4, at + 8), file.subarray(at + 8, at + 8 + length))
    at += 12 + length
  }
  t.same([...chunks.keys()], ['IHDR', 'tEXt', 'IDAT', 'IEND'])
  const header = chunks.get('IHDR')!
  t.same([header.readUInt32BE(0), header.readUInt32BE(4), ...header.subarray(8)], [64, 48, 8, 2, 0, 0, 0])
  const rows = inflateSync(chunks.get('IDAT')!)
  t.equal(rows.length, 48 * (1 + 64 * 3))
  t.ok([...Array(48).keys()].every((row) => rows[row * 193] === 2))
  if (hasFfmpeg) t.equal(decoded(file, '-f', 'rawvideo', '-pix_fmt', 'rgb24').length, 64 * 48 * 3)
})

t.test('images of another prompt or of another size are other images, also the smallest', async (t) => {
  const files = await Promise.all([make(image), make({ ...image, prompt: 'two cats' }), make({ ...image, width: 65 }), make({ ...image, width: 16, height: 16 })])
  t.equal(new Set(files.map((file) => createHash('sha256').update(file).digest('hex'))).size, 4)
})

t.test('a video is an MP4 of exactly the requested size and length, playable before it is complete and seekable everywhere', async (t) => {
  const file = await make(video)
  const tree = boxes(file)
  t.same(tree.map(({ type }) => type), ['ftyp', 'moov', 'mdat'])
  const get = (type: string): Box => boxes(file, type)[0]!
  t.equal(get('mvhd').data.readUInt32BE(12), 1000)
  t.equal(get('mvhd').data.readUInt32BE(16), 550)
  t.equal(get('mdhd').data.readUInt32BE(16) / get('mdhd').data.readUInt32BE(12), 0.55)
  const stts = get('stts').data
  t.same([...Array(stts.readUInt32BE(4) * 2).keys()].map((i) => stts.readUInt32BE(8 + i * 4)), [6, 1000, 1, 600], 'seven pictures at 12 a second, the last shorter')
  const keys = get('stss').data
  t.same([keys.readUInt32BE(4), keys.readUInt32BE(8)], [1, 1], 'the first of each second can be seeked to')

  const avcC = get('avcC').data
  t.same([...avcC.subarray(0, 6)], [1, 66, 0xc0, 20, 0xff, 0xe1])
  const sps = avcC.subarray(8, 8 + avcC.readUInt16BE(6))
  t.same(readSps(sps), { profile: 66, level: 20, width: 70, height: 50, fullRange: false, colours: [1, 1, 1] })

  const sizes = get('stsz').data
  let at = get('stco').data.readUInt32BE(8)
  t.equal(at, tree[2]!.start + 8)
  for (let n = 0; n < sizes.readUInt32BE(8); n++) {
    const size = sizes.readUInt32BE(12 + n * 4)
    t.equal(file.readUInt32BE(at), size - 4)
    const nal = file.subarray(at + 4, at + size)
    t.equal(nal[0], n === 0 ? 0x65 : 0x61, 'an IDR picture, and those that refer to it')
    for (const third of [0, 1, 2]) t.equal(nal.indexOf(Buffer.of(0, 0, third)), -1, 'no start code inside')
    at += size
  }
  t.equal(at, file.length)
  if (hasFfmpeg) t.equal(decoded(file, '-f', 'rawvideo', '-pix_fmt', 'yuv420p', '-fps_mode', 'passthrough').length, 7 * 70 * 50 * 1.5)
})

t.test('the pictures of a video differ', async (t) => {
  const file = await make(video)
  const frames = boxes(file, 'stsz')[0]!.data
  const sizes = [...Array(7).keys()].map((n) => frames.readUInt32BE(12 + n * 4))
  t.ok(new Set(sizes).size > 1)
})

t.test('an emulated start code inside a NAL unit is escaped', async (t) => {
  t.same([...nalUnit(0x65, Buffer.of(0, 0, 1, 0, 0, 0, 0, 0, 3, 0, 0, 4))], [0x65, 0, 0, 3, 1, 0, 0, 3, 0, 0, 3, 0, 3, 0, 0, 4])
})

t.test('every sample comes out of a decoder as it went in, whether it moves or stays', { skip: !hasFfmpeg && 'needs ffmpeg' }, async (t) => {
  const encoder = h264(94, 62, 12)
  const noise = (n: number, from: number): number => (Math.imul(n + from, 1_103_515_245) >>> 16) % 256
  const pictures = [0, 1, 2, 3].map((frame): Picture => {
    const picture = pictureFor(94, 62)
    // The upper half stays as it is.
    for (const i of picture.samples.keys()) picture.samples[i] = noise(i, i < picture.samples.length / 2 ? 0 : 7919 * frame)
    return picture
  })
  const stream = Buffer.concat([encoder.sps, encoder.pps, ...pictures.map((picture, n) => encoder.encode(picture, n === 2))].flatMap((nal) => [Buffer.of(0, 0, 0, 1), nal]))
  const plane = (width: number, height: number, at: (x: number, y: number) => number) => Array.from({ length: width * height }, (_, i) => at(i % width, Math.floor(i / width)))
  const planes = (one: Picture) => [plane(94, 62, (x, y) => lumaAt(one, x, y)), plane(47, 31, (x, y) => chromaAt(one, x, y)), plane(47, 31, (x, y) => chromaAt(one, x, y) + 64)]
  const whole = Buffer.from(pictures.flatMap((picture) => planes(picture).flat().map((at) => picture.samples[at] ?? 0)))
  t.ok(decoded(stream, '-f', 'rawvideo', '-pix_fmt', 'yuv420p', '-fps_mode', 'passthrough').equals(whole))
})

t.test('music is a WAV of exactly the requested length that begins and ends softly and is never clipped', async (t) => {
  const file = await make(music)
  t.equal(file.toString('latin1', 0, 4) + file.toString('latin1', 8, 16), 'RIFFWAVEfmt ')
  t.equal(file.readUInt32LE(4), file.length - 8)
  t.same([file.readUInt16LE(20), file.readUInt16LE(22), file.readUInt32LE(24), file.readUInt32LE(28), file.readUInt16LE(32), file.readUInt16LE(34)], [1, 2, 22_050, 88_200, 4, 16])
  const data = file.indexOf('data', 36, 'latin1')
  t.equal(file.readUInt32LE(data + 4), 1.5 * 22_050 * 4)
  t.equal(file.length, data + 8 + 1.5 * 22_050 * 4)
  const samples = new Int16Array(file.buffer.slice(file.byteOffset + data + 8, file.byteOffset + file.length))
  const peak = samples.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0)
  t.ok(peak > 20_000 && peak < 32_767, `peak ${peak}`)
  t.ok(Math.abs(samples[0]!) < 200 && Math.abs(samples.at(-1)!) < 200)
  t.ok(samples.some((sample, i) => i % 2 === 0 && sample !== samples[i + 1]), 'both channels')
  if (hasFfmpeg) t.equal(decoded(file, '-f', 's16le').length, samples.length * 2)
})

t.test('what moves costs, what stays does not: a film is small', async (t) => {
  const file = await make({ ...video, width: 320, height: 180, durationMs: 1000 })
  t.ok(file.length < 400_000, `${file.length} bytes`)
})

t.test('words of the prompt decide the time of day, the place, the colour and the mood', async (t) => {
  const brightness = (prompt: string): number => painted(prompt, null, 96, 64).rgb.slice(0, 96 * 20 * 3).reduce((sum, value) => sum + value, 0)
  t.ok(brightness('mountains at night') < brightness('mountains by day') / 2)
  const foot = (prompt: string): number[] => Array.from(painted(prompt, null, 96, 64).rgb.subarray(96 * 60 * 3, 96 * 60 * 3 + 3))
  t.ok((foot('a red desert at day')[0] ?? 0) > (foot('a red desert at day')[2] ?? 0) && (foot('the sea at day')[2] ?? 0) > (foot('the sea at day')[0] ?? 0))
  const crossings = (prompt: string): number => tune(prompt, 1, 3000, () => {}).left.reduce((count, sample, i, all) => count + (sample * (all[i - 1] ?? 0) < 0 ? 1 : 0), 0)
  t.not(crossings('a slow sad song'), crossings('a fast happy song'))
})

t.test('a scene is drawn at every size, with colours in range, the same each time, and moves', async (t) => {
  for (const [width, height] of [[96, 64], [16, 16], [16, 90], [200, 17]] as const) {
    const { rgb } = painted('a boat at dusk', 3, width, height)
    t.ok(rgb.every((value) => value >= 0 && value <= 255.001), `${width} by ${height}`)
    t.ok(Buffer.from(painted('a boat at dusk', 3, width, height).rgb.buffer).equals(Buffer.from(rgb.buffer)))
  }
  const at = (seconds: number): Float32Array => {
    const canvas = { ...painted('x', 1, 96, 64), rgb: new Float32Array(96 * 64 * 3) }
    scene('x', 1).moving(canvas, seconds)
    return canvas.rgb
  }
  const later = at(6)
  t.ok(at(0).some((value, i) => value !== later[i]))
})
