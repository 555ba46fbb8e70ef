/** What media files say about themselves, read from files that sharp and ffmpeg wrote, where those are installed, and from bytes written here. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { contentTypeOf, mediaInfo, PREFIX_BYTES, type MediaInfo } from '../../src/domain/media-info.ts'
import { wav } from '../backends/engines/media-samples.ts'

const hasFfmpeg = spawnSync('ffmpeg', ['-version']).status === 0
const noFfmpeg = hasFfmpeg ? false : 'ffmpeg is not installed'
// By a name of its own, since tsc must not need the package.
const name = 'sharp'
const sharp = await import(name).then((module) => module.default, () => null)
const noSharp = sharp ? false : 'sharp is not installed'

/** As a caller reads a file: its beginning first, then wherever its header goes on. */
function read(file: Buffer, prefixBytes = PREFIX_BYTES): MediaInfo | null {
  const prefix = file.subarray(0, prefixBytes)
  let info = mediaInfo(prefix, file.length)
  for (let at = info?.continuesAt ?? null; at !== null; at = info?.continuesAt ?? null) {
    info = mediaInfo(prefix, file.length, { at, bytes: file.subarray(at, at + prefixBytes) })
  }
  return info
}

function film(t: Test, file: string, ...args: string[]): Buffer {
  const path = join(t.testdir(), file)
  const { status, stderr } = spawnSync('ffmpeg', ['-v', 'error', '-y', ...args, path])
  if (status !== 0) throw new Error(stderr.toString())
  return readFileSync(path)
}

const PICTURES = ['-f', 'lavfi', '-i', 'testsrc2=size=64x48:rate=10:duration=2.5']
const SOUND = ['-f', 'lavfi', '-i', 'sine=frequency=440:duration=3.2']

/** A TIFF with a second directory of one tag, NewSubfileType. */
function withCopy(tiff: Buffer, subfileType: number): Buffer {
  const first = tiff.readUInt32LE(4)
  const copy = Buffer.alloc(18)
  copy.writeUInt16LE(1, 0)
  for (const [value, at] of [[254, 2], [4, 4]] as const) copy.writeUInt16LE(value, at)
  for (const [value, at] of [[1, 6], [subfileType, 10]] as const) copy.writeUInt32LE(value, at)
  const both = Buffer.concat([tiff, copy])
  both.writeUInt32LE(tiff.length, first + 2 + 12 * tiff.readUInt16LE(first))
  return both
}

t.test('the size, transparency and orientation of a picture are read from its header', { skip: noSharp }, async (t) => {
  const picture = (channels: 3 | 4) => sharp({ create: { width: 40, height: 30, channels, background: { r: 9, g: 99, b: 199, alpha: 0.5 } } })
  const size = { width: 40, height: 30, durationMs: null, atMostMs: null, orientation: 1, animated: false, continuesAt: null }
  t.same(read(await picture(3).png().toBuffer()), { ...size, contentType: 'image/png', alpha: false })
  t.same(read(await picture(4).png().toBuffer()), { ...size, contentType: 'image/png', alpha: true })
  t.match(read(await picture(4).png({ palette: true }).toBuffer()), { ...size, alpha: true }, 'by tRNS')
  t.same(read(await picture(3).webp().toBuffer()), { ...size, contentType: 'image/webp', alpha: false })
  t.same(read(await picture(4).webp().toBuffer()), { ...size, contentType: 'image/webp', alpha: true })
  t.same(read(await picture(4).webp({ lossless: true }).toBuffer()), { ...size, contentType: 'image/webp', alpha: true })
  t.match(read(await picture(3).gif().toBuffer()), { ...size, contentType: 'image/gif' })
  t.same(read(await picture(3).jpeg({ progressive: true }).toBuffer()), { ...size, contentType: 'image/jpeg', alpha: false })
  const turned = await picture(3).withMetadata({ orientation: 6 }).jpeg().toBuffer()
  t.match(read(turned), { contentType: 'image/jpeg', width: 30, height: 40, orientation: 6 })
  t.match(read(turned, 200), { width: 30, height: 40, orientation: 6 }, 'also when the header is longer than what was read of it')
  t.match(read(await picture(4).tiff({ compression: 'lzw' }).toBuffer(), 1000), { ...size, contentType: 'image/tiff', alpha: true })
  t.match([read(withCopy(await picture(3).tiff().toBuffer(), 0)), read(withCopy(await picture(3).tiff().toBuffer(), 1))], [{ animated: true }, { animated: false }], 'a reduced copy is no second page')
  t.match(read(await picture(3).withMetadata({ orientation: 6 }).tiff().toBuffer()), { contentType: 'image/tiff', width: 30, height: 40, orientation: 6, alpha: false })
})

t.test('an animation is told from a picture by the beginning of its file', { skip: noSharp }, async (t) => {
  const side = 200
  // Noise: its data are longer than the pieces that are read.
  const noise = (pages: number) => sharp(Buffer.from(Uint8Array.from({ length: side * side * pages * 3 }, (_, i) => (Math.imul(i + 1, 2654435761) >>> 13) & 255)), { raw: { width: side, height: side * pages, channels: 3, pageHeight: side } })
  for (const [format, contentType] of [['gif', 'image/gif'], ['webp', 'image/webp'], ['tiff', 'image/tiff']] as const) {
    for (const [pages, animated] of [[1, false], [3, true]] as const) {
      const file = await noise(pages)[format]({ loop: 0 }).toBuffer()
      t.match(read(file), { contentType, width: side, height: side, animated, continuesAt: null }, `${format} of ${pages}`)
      t.match(read(file, 2000), { animated, continuesAt: null }, `${format} of ${pages}, read in pieces`)
    }
  }
  const still: Buffer = await noise(1).png().toBuffer()
  const control = Buffer.concat([Buffer.of(0, 0, 0, 8), Buffer.from('acTL'), Buffer.of(0, 0, 0, 2, 0, 0, 0, 0), Buffer.alloc(4)])
  t.match([read(still), read(Buffer.concat([still.subarray(0, 33), control, still.subarray(33)]))], [{ animated: false }, { animated: true, width: side }], 'PNG by acTL')
  const profile = Buffer.concat([Buffer.of(0, 0, 0x27, 0x10), Buffer.from('iCCP'), Buffer.alloc(10_004)])
  const late = Buffer.concat([still.subarray(0, 33), profile, control, still.subarray(33)])
  t.match([read(late, 2000), read(late.subarray(0, 10_000), 2000)], [{ animated: true, continuesAt: null }, { animated: false, continuesAt: null }], 'also behind a large profile')
})

/** A box of ISO/IEC 14496-12; `full` has a version and flags. */
function box(type: string, ...parts: (Buffer | string)[]): Buffer {
  const content = Buffer.concat(parts.map((part) => Buffer.from(part as string, 'latin1')))
  const head = Buffer.from(`\0\0\0\0${type}`, 'latin1')
  head.writeUInt32BE(8 + content.length)
  return Buffer.concat([head, content])
}
const u16 = (...values: number[]) => Buffer.concat(values.map((value) => Buffer.of(value >> 8, value & 255)))

t.test('a sequence of HEIC or AVIF is told from a picture with tiles, a thumbnail and a gain map', async (t) => {
  const file = (brands: string, ...rest: Buffer[]) => Buffer.concat([box('ftyp', brands.slice(0, 4), '\0\0\0\0', brands), ...rest])
  const item = (id: number, type: string, flags = 0) => box('infe', Buffer.of(2, 0, 0, flags), u16(id, 0), type, '\0')
  const refers = (type: string, from: number, ...to: number[]) => box(type, u16(from, to.length, ...to))
  const size = (width: number, height: number) => box('ispe', '\0\0\0\0', u16(0, width, 0, height))
  const meta = (items: Buffer[], references: Buffer[], ...properties: Buffer[]) => box('meta', '\0\0\0\0', box('hdlr', Buffer.alloc(25)),
    box('iinf', '\0\0\0\0', u16(items.length), ...items), box('iref', '\0\0\0\0', ...references), box('iprp', box('ipco', ...properties)))
  const phone = meta([item(1, 'hvc1', 1), item(2, 'hvc1'), item(3, 'grid'), item(4, 'hvc1'), item(5, 'Exif'), item(6, 'hvc1'), item(7, 'tmap')],
    [refers('dimg', 3, 1, 2), refers('thmb', 4, 3), refers('cdsc', 5, 3), refers('auxl', 6, 3), refers('dimg', 7, 6)], size(512, 512), size(4032, 3024), size(320, 240), box('irot', Buffer.of(1)))
  t.match(read(file('heicmif1', phone)), { contentType: 'image/heic', width: 3024, height: 4032, animated: false, continuesAt: null })
  t.match(read(file('heicmif1', meta([item(1, 'hvc1'), item(2, 'hvc1')], [], size(64, 48)))), { width: 64, height: 48, animated: true }, 'two pictures')
  for (const brand of ['msf1', 'heim', 'heis']) t.match(read(file(`${brand}heic`)), { contentType: 'image/heic', animated: true }, brand)
  t.match([read(file('avifmif1')), read(file('avismsf1'))], [{ contentType: 'image/avif', animated: false }, { contentType: 'image/avif', animated: true }])
  const tracks = file('mif1avif', meta([item(1, 'av01')], []), box('mdat', Buffer.alloc(3000)), box('moov'))
  t.match(read(tracks, 400), { contentType: 'image/avif', animated: true, continuesAt: null }, 'by its tracks, behind the first picture')
  t.match(read(tracks.subarray(0, -20), 400), { animated: false })
  if (!sharp) return
  const real = sharp({ create: { width: 40, height: 30, channels: 4, background: { r: 9, g: 99, b: 199, alpha: 0.5 } } })
  t.match(read(await real.avif({ effort: 0 }).toBuffer()), { contentType: 'image/avif', width: 40, height: 30, animated: false })
})

t.test('the size and length of a film are read, wherever its index is', { skip: noFfmpeg }, async (t) => {
  const facts = { contentType: 'video/mp4', width: 64, height: 48, durationMs: 2500, continuesAt: null }
  t.match(read(film(t, 'front.mp4', ...PICTURES, '-movflags', '+faststart')), facts)
  const end = film(t, 'end.mp4', ...PICTURES)
  t.ok((mediaInfo(end.subarray(0, 1000), end.length)?.continuesAt ?? 0) > 1000)
  t.match(read(end, 1000), facts)
  t.match(read(film(t, 'sound.mp4', ...SOUND, ...PICTURES, '-map', '0', '-map', '1', '-shortest')), { width: 64, height: 48 }, 'also when the sound comes first')
  const matrix = end.indexOf('tkhd') + 44
  for (const [i, value] of [0, 65_536, 0, -65_536, 0].entries()) end.writeInt32BE(value, matrix + 4 * i)
  t.match(read(end), { width: 48, height: 64 }, 'as displayed when the track is turned')
  t.match(read(film(t, 'quick.mov', ...PICTURES)), { ...facts, contentType: 'video/quicktime' })
  t.match(read(film(t, 'parts.mp4', ...PICTURES, '-movflags', 'frag_keyframe+empty_moov')), { contentType: 'video/mp4', width: 64, height: 48 })
  t.match(read(film(t, 'sound.m4a', ...SOUND)), { contentType: 'audio/mp4', width: null })
  t.match(read(film(t, 'web.webm', ...PICTURES, '-c:v', 'libvpx')), { contentType: 'video/webm', durationMs: 2500 })
  t.match(read(film(t, 'live.webm', ...PICTURES, '-c:v', 'libvpx', '-live', '1')), { contentType: 'video/webm', durationMs: null }, 'as a browser records')
  t.match(read(film(t, 'web.mkv', ...PICTURES)), { contentType: 'video/x-matroska', durationMs: 2500 })
  t.match(read(film(t, 'air.ts', ...PICTURES)), { contentType: 'video/mp2t' })
  const old = film(t, 'old.mov', ...PICTURES, '-movflags', '+faststart')
  t.match(read(old.subarray(old.readUInt32BE(0))), { ...facts, contentType: 'video/quicktime' }, 'also without a box that says so')
})

t.test('the length of a sound is read from its header', { skip: noFfmpeg }, async (t) => {
  const near = (file: Buffer, contentType: string, slackMs: number) => {
    const info = read(file, 4096)
    t.equal(info?.contentType, contentType)
    t.ok(Math.abs((info?.durationMs ?? 0) - 3200) <= slackMs, `${contentType}: ${info?.durationMs} ms`)
  }
  near(film(t, 'a.wav', ...SOUND), 'audio/wav', 1)
  near(film(t, 'a.flac', ...SOUND), 'audio/flac', 1)
  near(film(t, 'cbr.mp3', ...SOUND, '-b:a', '128k', '-write_xing', '0'), 'audio/mpeg', 60)
  near(film(t, 'vbr.mp3', ...SOUND, '-q:a', '4'), 'audio/mpeg', 60)
  near(film(t, 'low.mp3', ...SOUND, '-ar', '16000', '-b:a', '32k'), 'audio/mpeg', 110)
  near(film(t, 'tag.mp3', ...SOUND, '-b:a', '64k', '-metadata', `comment=${'x'.repeat(9000)}`), 'audio/mpeg', 60)
  const [vorbis, opus] = [film(t, 'a.ogg', ...SOUND), film(t, 'a.opus', ...SOUND)]
  const large = film(t, 'large.ogg', '-f', 'lavfi', '-i', 'anoisesrc=d=20:seed=1', '-q:a', '9')
  t.ok(large.length > PREFIX_BYTES)
  for (const [file, lastsMs] of [[vorbis, 3200], [opus, 3200], [large, 20_000]] as const) {
    const info = read(file)
    t.equal(info?.contentType, 'audio/ogg')
    t.ok(Math.abs((info?.durationMs ?? 0) - lastsMs) <= 30, `Ogg: ${info?.durationMs} ms`)
  }
  t.match(read(film(t, 'speech.oga', ...SOUND, '-c:a', 'flac', '-f', 'ogg')), { contentType: 'audio/ogg', durationMs: null })
  const variable = read(film(t, 'variable.mp3', '-f', 'lavfi', '-i', 'anoisesrc=d=1:seed=1', ...SOUND, '-filter_complex', '[0][1]concat=v=0:a=1', '-q:a', '4', '-write_xing', '0'))
  t.ok((variable?.durationMs ?? 0) < 3500 && (variable?.atMostMs ?? 0) >= 4200, `4,200 ms are ${variable?.durationMs} to ${variable?.atMostMs}`)
  const song = film(t, 'song.mp3', ...SOUND)
  t.match(read(Buffer.concat([song, song])), { durationMs: Number, atMostMs: Number }, 'a count of the first of two joined files is not that of both')
  t.equal(read(Buffer.concat([vorbis, opus]))?.durationMs, null, 'another stream follows')
  const late = Buffer.from(vorbis)
  for (let at = late.indexOf('OggS'); at >= 0; at = late.indexOf('OggS', at + 1)) {
    const samples = late.readBigInt64LE(at + 6)
    if (samples > 0n) late.writeBigInt64LE(samples + 44_100n * 7200n, at + 6)
  }
  t.equal(read(late)?.durationMs, null, 'the first page is two hours late')
  t.match([read(film(t, 'counted.mp3', ...SOUND)), read(film(t, 'plain.mp3', ...SOUND, '-write_xing', '0'))], [{ atMostMs: null }, { atMostMs: Number }])
  t.equal(read(film(t, 'a.aac', ...SOUND))?.contentType, 'audio/aac')
})

t.test('a WAV that was streamed is as long as what there is of it', async (t) => {
  const file = Buffer.alloc(44 + 8000)
  file.write('RIFF\xff\xff\xff\xffWAVEfmt ', 'latin1')
  file.writeUInt32LE(16, 16)
  file.writeUInt32LE(16_000, 28)
  file.write('data\xff\xff\xff\xff', 36, 'latin1')
  t.match(mediaInfo(file, file.length), { contentType: 'audio/wav', durationMs: 500 })
  t.match(mediaInfo(file, null), { durationMs: null })
})

t.test('a file of another type is not media, and no truncated file breaks the reader', async (t) => {
  for (const text of ['', '<!doctype html><title>404</title>', '{"error": {"message": "no"}}', 'PK\x03\x04', '\xff\xfe\0\0text']) {
    t.equal(contentTypeOf(Buffer.from(text, 'latin1')), null, JSON.stringify(text))
  }
  const box = (type: string, ...content: number[]) => Buffer.concat([Buffer.of(0, 0, 0, 8 + content.length), Buffer.from(type), Buffer.from(content)])
  const samples = [
    Buffer.from('\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x05\0\0\0\x04\x08\x06\0\0\0crc.\xff\xff\xff\xffevil', 'latin1'),
    Buffer.from('\xff\xd8\xff\xe1\0\x20Exif\0\0MM\0*\xff\xff\xff\xff\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\xff\xc0\0\x11\x08\0\x04\0\x05', 'latin1'),
    Buffer.from('\xff\xd8\xff\xc0', 'latin1'),
    Buffer.from('RIFF\0\0\0\0WEBPVP8X\n\0\0\0\x10\0\0\0\x04\0\0\x03\0\0', 'latin1'),
    Buffer.from('ID3\x04\0\0\x7f\x7f\x7f\x7f', 'latin1'),
    Buffer.concat([box('ftyp', ...Buffer.from('isom')), box('moov', 0, 0, 0, 1, ...Buffer.from('trak'), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)]),
    Buffer.concat([box('ftyp', ...Buffer.from('isom')), Buffer.of(0, 0, 0, 1), Buffer.from('mdat'), Buffer.alloc(8, 0xff)]),
    Buffer.concat([box('ftyp', ...Buffer.from('isom')), Buffer.of(0, 0, 0, 3), Buffer.from('mdat')]),
  ]
  for (const sample of samples) for (let length = 0; length <= sample.length; length++) t.doesNotThrow(() => read(sample.subarray(0, length)))
  t.match(read(samples[0]!), { width: 5, height: 4, alpha: true })
  t.match(read(samples[3]!), { width: 5, height: 4, alpha: true })
})

t.test('no length is below nothing, whatever size a file is said to have', async (t) => {
  const tagged = Buffer.concat([Buffer.from('ID3\x04\0\0\0\0\x01\0', 'latin1'), Buffer.alloc(128), Buffer.from([0xff, 0xfb, 0x90, 0]), Buffer.alloc(5000)])
  for (const size of [0, 1, 43]) {
    t.match(mediaInfo(wav(4000), size), { contentType: 'audio/wav', durationMs: null })
    t.match(mediaInfo(tagged, size), { contentType: 'audio/mpeg', durationMs: null, atMostMs: null })
  }
})
