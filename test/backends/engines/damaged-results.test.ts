/** Results that a provider cut off, of every format that providers write: they are found out, and whole ones are not. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { contentOf } from '../../../src/backends/engines/provider/content.ts'
import { defectOf } from '../../../src/backends/engines/provider/damaged-results.ts'
import { loadSharp } from '../../../src/backends/engines/provider/mask.ts'
import { contentTypeOf } from '../../../src/domain/media-info.ts'
import { mp4, png, wav } from './media-samples.ts'

const noFfmpeg = spawnSync('ffmpeg', ['-version']).status === 0 ? false : 'ffmpeg is not installed'
const noSharp = (await loadSharp()) ? false : 'sharp is not installed'
const noise = (x: number, y: number): number[] => [(x * 71 + y * 13) % 256, (x * y) % 256, (x * 7) % 256]

function encoded(t: Test, file: string, ...args: string[]): Buffer {
  const path = join(t.testdir(), file)
  const { status, stderr } = spawnSync('ffmpeg', ['-v', 'error', '-y', ...args, path])
  if (status !== 0) throw new Error(stderr.toString())
  return readFileSync(path)
}

const defect = (bytes: Buffer, load = loadSharp) => defectOf(contentOf(bytes), contentTypeOf(bytes) ?? '', load)

/** Whole it passes; cut anywhere behind its header it does not. */
async function isCut(t: Test, what: string, whole: Buffer, load = loadSharp): Promise<void> {
  t.equal(await defect(whole, load), null, `${what}, whole`)
  for (const share of [0.3, 0.5, 0.9, 0.99]) t.type(await defect(whole.subarray(0, Math.floor(whole.length * share)), load), 'string', `${what}, cut at ${share}`)
}

const PICTURES = ['-f', 'lavfi', '-i', 'testsrc=s=160x120:r=25:d=2']
const SOUND = ['-f', 'lavfi', '-i', 'anoisesrc=d=3:r=44100:seed=1']

t.test('a picture, a film or a sound that was cut off is found out without a decoder', async (t) => {
  const without = async () => null
  await isCut(t, 'PNG', png(80, 60, { paint: noise }), without)
  await isCut(t, 'MP4 with its index in front', mp4(64, 48, 1000, { bytes: 9000 }), without)
  await isCut(t, 'MP4 with its index at the end', mp4(64, 48, 1000, { bytes: 9000, index: 'end' }), without)
  await isCut(t, 'WAV', wav(1000), without)
  const streamed = wav(1000)
  streamed.writeUInt32LE(0xffff_ffff, 40)
  t.equal(await defect(streamed.subarray(0, 5000), without), null, 'a WAV that was streamed goes as far as it goes')
})

t.test('so are files that ffmpeg wrote', { skip: noFfmpeg }, async (t) => {
  await isCut(t, 'JPEG', encoded(t, 'a.jpg', ...PICTURES, '-frames:v', '1'))
  await isCut(t, 'MP4', encoded(t, 'a.mp4', ...PICTURES, '-pix_fmt', 'yuv420p'))
  await isCut(t, 'fragmented MP4', encoded(t, 'f.mp4', ...PICTURES, '-pix_fmt', 'yuv420p', '-g', '10', '-movflags', 'frag_keyframe+empty_moov'))
  await isCut(t, 'FLAC', encoded(t, 'a.flac', ...SOUND))
  await isCut(t, 'MP3', encoded(t, 'a.mp3', ...SOUND, '-b:a', '128k'))
  await isCut(t, 'MP3 of a variable rate, with tags', encoded(t, 'v.mp3', ...SOUND, '-q:a', '4', '-metadata', `comment=${'x'.repeat(9000)}`, '-write_id3v1', '1'))
  await isCut(t, 'MP3 of a low rate', encoded(t, 'l.mp3', ...SOUND, '-ar', '16000', '-b:a', '32k'))
  await isCut(t, 'WAV', encoded(t, 'a.wav', ...SOUND))
})

t.test('a picture whose end is there and whose middle is not is found out by decoding it', { skip: noSharp }, async (t) => {
  const sharp = (await loadSharp()) as unknown as (pixels: Uint8Array, options: object) => Record<string, (options?: object) => { toBuffer(): Promise<Buffer> }>
  const pixels = Buffer.from(Array.from({ length: 80 * 60 }, (_, i) => noise(i % 80, Math.floor(i / 80))).flat())
  for (const format of ['png', 'jpeg', 'webp']) {
    const whole = await sharp(pixels, { raw: { width: 80, height: 60, channels: 3 } })[format]!().toBuffer()
    await isCut(t, format, whole)
    // Decoders show a JPEG with a hole, and warn.
    if (format === 'jpeg') continue
    const middle = Math.floor(whole.length / 2)
    const holed = Buffer.concat([whole.subarray(0, middle), Buffer.alloc(40), whole.subarray(middle + 400)])
    t.type(await defect(holed), 'string', `${format} with a hole`)
  }
})
