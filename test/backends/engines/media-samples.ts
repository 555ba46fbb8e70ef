/** Small media files, written here by the formats' specifications, so that tests need no encoder. */
import { crc32, deflateSync } from 'node:zlib'

/** A PNG of one colour; RGBA with `alpha` (0 to 255), RGB without. `paint` sets single pixels: `[red, green, blue, alpha]` or null for the colour. */
export function png(width: number, height: number, { alpha, paint }: { alpha?: number; paint?: (x: number, y: number) => number[] | null } = {}): Buffer {
  const channels = alpha === undefined ? 3 : 4
  const colour = Buffer.of(20, 120, 220, alpha ?? 255).subarray(0, channels)
  const row = Buffer.concat([Buffer.of(0), Buffer.alloc(width * channels, colour)])
  const rows = Buffer.alloc(height * row.length, row)
  for (let y = 0; paint && y < height; y++) {
    for (let x = 0; x < width; x++) {
      const pixel = paint(x, y)
      if (pixel) rows.set(pixel.slice(0, channels), y * row.length + 1 + x * channels)
    }
  }
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width, 0)
  header.writeUInt32BE(height, 4)
  header.set([8, channels === 4 ? 6 : 2, 0, 0, 0], 8)
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), chunk('IHDR', header), chunk('IDAT', deflateSync(rows)), chunk('IEND', Buffer.alloc(0))])
}

function chunk(type: string, content: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type), content])
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
  length.writeUInt32BE(content.length)
  sum.writeUInt32BE(crc32(body))
  return Buffer.concat([length, body, sum])
}

type Mp4 = { bytes?: number; index?: 'front' | 'end'; fragmentMs?: number }

/**
 * An MP4 with the size and length in its headers and `bytes` of content, its index in front or at the end. Nothing in it can be played. `fragmentMs`: it ends with a
 * fragment of that length, which `durationMs` does not count.
 */
export function mp4(width: number, height: number, durationMs: number, { bytes = 64, index = 'front', fragmentMs }: Mp4 = {}): Buffer {
  const mvhd = Buffer.alloc(100)
  mvhd.writeUInt32BE(1000, 12)
  mvhd.writeUInt32BE(durationMs, 16)
  const tkhd = Buffer.alloc(84)
  for (const [at, value] of [[40, 65_536], [56, 65_536], [72, 0x40000000], [76, width * 65_536], [80, height * 65_536]] as const) tkhd.writeUInt32BE(value, at)
  const moov = box('moov', box('mvhd', mvhd), box('trak', box('tkhd', tkhd), box('mdia', box('mdhd', words(0, 0, 0, 1000)))))
  const moof = fragmentMs === undefined ? [] : [box('moof', box('traf', box('tfhd', words(8, 0, fragmentMs)), box('trun', words(0, 1))))]
  const mdat = box('mdat', Buffer.alloc(bytes, 7))
  const ftyp = box('ftyp', Buffer.from('isom\0\0\x02\0isomiso2', 'latin1'))
  return Buffer.concat([ftyp, ...(index === 'front' ? [moov, mdat] : [mdat, moov]), ...moof])
}

function words(...values: number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length)
  values.forEach((value, i) => bytes.writeUInt32BE(value, 4 * i))
  return bytes
}

function box(type: string, ...contents: Buffer[]): Buffer {
  const content = Buffer.concat(contents)
  const size = Buffer.alloc(4)
  size.writeUInt32BE(8 + content.length)
  return Buffer.concat([size, Buffer.from(type), content])
}

/** A WAV of silence: 8,000 samples a second, 16 bits, mono. */
export function wav(durationMs: number): Buffer {
  const data = Buffer.alloc(durationMs * 16)
  const header = Buffer.alloc(44)
  header.write('RIFF', 0)
  header.writeUInt32LE(36 + data.length, 4)
  header.write('WAVEfmt ', 8)
  header.writeUInt32LE(16, 16)
  header.writeUInt16LE(1, 20)
  header.writeUInt16LE(1, 22)
  header.writeUInt32LE(8000, 24)
  header.writeUInt32LE(16_000, 28)
  header.writeUInt16LE(2, 32)
  header.writeUInt16LE(16, 34)
  header.write('data', 36)
  header.writeUInt32LE(data.length, 40)
  return Buffer.concat([header, data])
}
