/** The preview engine keeps the contract, and what it makes is what its name says: read here byte by byte, and by ffmpeg where that is installed. */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { crc32, inflateSync } from 'node:zlib'
import t from 'tap'
import type { EngineRequest, Input } from '../../../src/backends/engines/engine.ts'
import { openPreview } from '../../../src/backends/engines/preview/preview.ts'
import { blankCanvas } from '../../../src/backends/engines/preview/canvas.ts'
import { decodePng } from '../../../src/backends/engines/preview/png-decoder.ts'
import { png } from '../../../src/backends/engines/preview/png-encoder.ts'
import { h264, nalUnit } from '../../../src/backends/engines/preview/h264.ts'
import { pictureFor } from '../../../src/backends/engines/preview/yuv-picture.ts'
import type { GenerationRequest } from '../../../src/domain/media-generations.ts'
import { enginePromises } from '../../contracts/engine.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { runControl } from '../../fakes/engine.ts'
import { boxes, readSps, type Box } from './mp4-reader.ts'

const small = { prompt: 'a lighthouse at dusk', seed: null, width: 64, height: 48 }
const image: GenerationRequest = { ...small, verb: 'image', durationMs: null, format: 'png' }
const video: GenerationRequest = { ...small, verb: 'video', width: 70, height: 50, durationMs: 550, format: 'mp4' }
const music: GenerationRequest = { ...small, verb: 'music', width: null, height: null, durationMs: 1500, format: 'wav' }

const edit: EngineRequest = { verb: 'ai_edit', prompt: 'snow', strength: null, seed: null, format: 'png' }
const source = await make({ ...image, prompt: 'the source' })
const input = (content: Buffer, role: Input['role'] = 'media'): Input => ({ role, contentType: 'image/png', bytes: content.length, read: async function* () { yield content } })

async function make(request: GenerationRequest): Promise<Buffer> {
  const engine = await openPreview('preview', {})
  const made = await engine.run(request, runControl())
  if (made.outcome !== 'made') throw new Error(made.code, { cause: made.cause })
  return Buffer.from(made.body as Uint8Array)
}

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
    return { engine, requests: [image, video, music, edit], inputsOf: ({ verb }) => (verb === 'ai_edit' ? [input(source)] : []) }
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
  t.ok([...Array(48).keys()].every((row) => [1, 2, 4].includes(rows[row * 193]!)))
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
  t.equal(boxes(file, 'stss').length, 0, 'no list of sync samples: all are')

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
    t.equal(nal[0], 0x65, 'an IDR picture')
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
  t.same([...nalUnit(0x65, Uint8Array.of(0, 0, 1, 0, 0, 0, 0, 0, 3, 0, 0, 4))], [0x65, 0, 0, 3, 1, 0, 0, 3, 0, 0, 3, 0, 3, 0, 0, 4])
})

/** Smooth, flat, noisy and hard-edged parts, from whole numbers only. */
function pattern(width: number, height: number, frame: number): ReturnType<typeof pictureFor> {
  const picture = pictureFor(width, height)
  let chance = 1 + frame
  for (const [n, { samples, width: wide }] of [picture.luma, picture.cb, picture.cr].entries()) {
    for (let i = 0; i < samples.length; i++) {
      const [x, y] = [i % wide, Math.floor(i / wide)]
      chance = (Math.imul(chance, 1_103_515_245) + 12_345) & 0x7fffffff
      const noise = ((chance >> 16) & 255) - 128
      const base = (x * (2 + n) + y * 3 + frame * 40) & 255
      samples[i] = x < wide / 4 ? base >> 1 : x < wide / 2 ? 128 + (noise >> (frame + 1)) : y % 32 < 16 ? ((x >> 2) & 1) * 255 : 90
    }
  }
  return picture
}

t.test('the encoder writes the bit stream that decoders were found to agree with', async (t) => {
  const encoder = h264(94, 62, 12)
  const pictures = [0, 1, 2, 3].map((frame) => pattern(94, 62, frame))
  const stream = Buffer.concat([encoder.sps, encoder.pps, ...pictures.map((picture) => encoder.encode(picture))].flatMap((nal) => [Buffer.of(0, 0, 0, 1), nal]))
  t.equal(createHash('sha256').update(stream).digest('hex'), '40a7d97ea5ff6a16592ee0718623951b1ea51538eb3bc0eb02eaa285bc8f0792')
  if (!hasFfmpeg) return
  const raw = decoded(stream, '-f', 'rawvideo', '-pix_fmt', 'yuv420p', '-fps_mode', 'passthrough')
  const whole = Buffer.concat(
    pictures.flatMap(({ luma, cb, cr }) =>
      ([[luma, 94, 62], [cb, 47, 31], [cr, 47, 31]] as const).flatMap(([{ samples, width }, w, h]) =>
        [...Array(h).keys()].map((row) => samples.subarray(row * width, row * width + w)))))
  t.equal(raw.length, whole.length)
  const error = whole.reduce((sum, sample, i) => sum + (sample - raw[i]!) ** 2, 0) / whole.length
  t.ok(10 * Math.log10(255 ** 2 / error) > 33, `PSNR ${10 * Math.log10(255 ** 2 / error)} dB`)
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

t.test('an edit keeps the size of its source, shows it as little as the strength says, and changes what the mask marks alone', async (t) => {
  const engine = await openPreview('preview', {})
  const edited = async (request: object, inputs: Input[]) => {
    const made = await engine.run({ ...edit, ...request } as EngineRequest, runControl({ inputs }))
    if (made.outcome !== 'made') throw new Error(made.code, { cause: made.cause })
    t.same(made.facts, { width: 64, height: 48, durationMs: null })
    return decodePng(made.body as Uint8Array, 1e6)?.rgba ?? new Uint8Array()
  }
  const before = decodePng(source, 1e6)?.rgba ?? new Uint8Array()
  /** The mean difference of the colours of the left or right half, above the watermark. */
  const change = (after: Uint8Array, half: 0 | 1): number => {
    let sum = 0
    for (let y = 0; y < 30; y++) for (let x = 32 * half; x < 32 * (half + 1); x++) for (let c = 0; c < 3; c++) sum += Math.abs((after[(y * 64 + x) * 4 + c] ?? 0) - (before[(y * 64 + x) * 4 + c] ?? 0))
    return sum / (30 * 32 * 3)
  }
  const none = await edited({ strength: 0 }, [input(source)])
  t.same([change(none, 0), change(none, 1)], [0, 0])
  const [some, all] = [await edited({}, [input(source)]), await edited({ strength: 1 }, [input(source)])]
  t.ok(change(some, 0) > 1 && change(all, 0) > 1.5 * change(some, 0))
  const mask = blankCanvas(32, 24)
  for (let y = 0; y < 24; y++) mask.rgb.fill(255, y * 96, y * 96 + 48)
  const masked = await edited({ strength: 1 }, [input(source), input(Buffer.from(png(mask)), 'mask')])
  t.same([change(masked, 0) > 1, change(masked, 1)], [true, 0], 'the white half')
  const square = Buffer.from(png(blankCanvas(20, 20)))
  t.match(await engine.run(edit, runControl({ inputs: [input(source), input(square, 'mask')] })), { code: 'unsupported_input', retryable: false })
  t.match(await engine.run(edit, runControl({ inputs: [input(Buffer.from('\xff\xd8\xff', 'latin1'))] })), { code: 'unsupported_input', retryable: false })
  t.match(await engine.run({ verb: 'upscale', scale: 2, format: 'png' }, runControl({ inputs: [input(source)] })), { code: 'not_supported' })
})
