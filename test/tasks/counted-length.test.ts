/** The length of sources whose headers do not tell it, counted in files that ffmpeg wrote. */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import t, { type Test } from 'tap'
import { openFiles } from '../../src/backends/files/files.ts'
import { infoOf } from '../../src/tasks/source-info.ts'

const noFfmpeg = spawnSync('ffmpeg', ['-version']).status === 0 ? false : 'ffmpeg is not installed'

const PICTURES = ['-f', 'lavfi', '-i', 'testsrc2=size=160x120:rate=25:duration=5.2']
const SOUND = ['-f', 'lavfi', '-i', 'sine=frequency=440:duration=5.2']
const BOTH = [...PICTURES, ...SOUND]

/** What ffmpeg writes where it cannot go back to write a length. */
function recorded(...args: string[]): Buffer {
  const { status, stdout, stderr } = spawnSync('ffmpeg', ['-v', 'error', ...args, 'pipe:1'], { maxBuffer: 1e9 })
  if (status !== 0) throw new Error(stderr.toString())
  return stdout
}

function box(bytes: number, type: string): Buffer {
  const head = Buffer.from(`\0\0\0\0${type}`)
  head.writeUInt32BE(bytes)
  return head
}

async function openLengths(t: Test) {
  const files = await openFiles(`disk:${join(t.testdir(), 'files')}`)
  t.teardown(() => files.close())
  return async (bytes: Buffer) => {
    const file = await files.put('source', Readable.from([bytes]), { contentType: 'application/octet-stream', expiresAt: 1e15 })
    return infoOf(files, file)
  }
}

t.test('the length of a source is counted where its header does not tell it', { skip: noFfmpeg }, async (t) => {
  const lengthOf = await openLengths(t)
  const samples: [name: string, contentType: string, ...args: string[]][] = [
    ['AAC', 'audio/aac', ...SOUND, '-f', 'adts'],
    ['AAC of a low rate', 'audio/aac', ...SOUND, '-ar', '22050', '-f', 'adts'],
    ['MPEG-TS', 'video/mp2t', ...BOTH, '-c:v', 'mpeg2video', '-q:v', '1', '-bf', '2', '-f', 'mpegts'],
    ['MPEG-TS of sound', 'video/mp2t', ...SOUND, '-c:a', 'mp2', '-f', 'mpegts'],
    ['WebM', 'video/webm', ...BOTH, '-c:v', 'libvpx', '-deadline', 'realtime', '-c:a', 'libopus', '-f', 'webm', '-live', '1'],
    ['WebM of sound', 'video/webm', ...SOUND, '-c:a', 'libopus', '-f', 'webm', '-live', '1'],
    ['Matroska', 'video/x-matroska', ...PICTURES, '-c:v', 'rawvideo', '-f', 'matroska'],
    ['fragments', 'video/mp4', ...BOTH, '-c:v', 'mpeg4', '-q:v', '1', '-g', '25', '-bf', '2', '-f', 'mp4', '-movflags', 'frag_keyframe+empty_moov'],
    ['fragments with defaults', 'video/mp4', ...PICTURES, '-c:v', 'mpeg4', '-f', 'mp4', '-movflags', 'frag_every_frame+empty_moov+default_base_moof'],
    ['fragments of sound', 'video/mp4', ...SOUND, '-f', 'mp4', '-movflags', 'empty_moov', '-frag_duration', '1000000'],
  ]
  for (const [name, contentType, ...args] of samples) {
    const info = await lengthOf(recorded(...args))
    t.match(info, { contentType }, name)
    t.ok(Math.abs((info?.durationMs ?? 0) - 5200) <= 100, `${name}: ${info?.durationMs} ms`)
  }
})

t.test('files that were joined last as long as both, and what is damaged has no length', { skip: noFfmpeg }, async (t) => {
  const lengthOf = await openLengths(t)
  const ts = recorded(...SOUND, '-c:a', 'mp2', '-f', 'mpegts')
  const webm = recorded(...SOUND, '-c:a', 'libopus', '-f', 'webm', '-live', '1')
  for (const file of [ts, webm]) t.ok(Math.abs(((await lengthOf(Buffer.concat([file, file])))?.durationMs ?? 0) - 10_400) <= 100)
  t.match(await lengthOf(Buffer.concat([webm, Buffer.alloc(1000)])), { durationMs: null })
  const mp4 = recorded(...SOUND, '-f', 'mp4', '-movflags', 'empty_moov', '-frag_duration', '1000000')
  t.ok(Math.abs(((await lengthOf(Buffer.concat([mp4, mp4])))?.durationMs ?? 0) - 10_400) <= 100)
  const filled = (bytes: number): Buffer => Buffer.concat([box(bytes, 'free'), Buffer.alloc(bytes - 8, 1)])
  const longer = Buffer.concat([box(24, 'moof'), box(10_000, 'traf'), box(10_000, 'trun'), filled(0x100), filled(20_000)])
  t.match(await lengthOf(Buffer.concat([mp4, longer])), { durationMs: (await lengthOf(mp4))?.durationMs }, 'a box is used as far as the one that it lies in')
  const empty = Buffer.alloc(2_100_000, Buffer.of(0xec, 0x80))
  t.match(await lengthOf(Buffer.concat([webm, empty])), { durationMs: null }, 'a million elements')
  t.match(await lengthOf(Buffer.concat([box(8, 'ftyp'), Buffer.alloc(8_100_000, box(8, 'free'))])), { durationMs: null }, 'a million boxes')
  const nested = Buffer.concat(Array.from({ length: 50_000 }, (_, n) => box(8 * (50_000 - n), 'moof')))
  t.match(await lengthOf(Buffer.concat([box(8, 'ftyp'), nested])), { contentType: 'video/mp4', durationMs: null })
})
