/** MP4 (ISO/IEC 14496-12 and -15): one H.264 track, the index before the pictures, so that playing can begin before everything has arrived. */
export type Film = {
  width: number
  height: number
  /** Length in milliseconds; the last frame is shown for what the others leave. */
  durationMs: number
  framesPerSecond: number
  sps: Uint8Array
  pps: Uint8Array
  /** One NAL unit per picture. */
  frames: Uint8Array[]
  /** Those that can be seeked to, from 0. */
  keyFrames: number[]
}

/** Ticks of a frame; a millisecond has as many as a second has frames. */
const TICKS_PER_FRAME = 1000

/** How many frames a video of that length has. */
export function frameCount(durationMs: number, framesPerSecond: number): number {
  return Math.max(1, Math.ceil((durationMs * framesPerSecond) / 1000))
}

const text = (value: string): Buffer => Buffer.from(value, 'latin1')

const u16 = (...values: number[]): Buffer => Buffer.from(values.flatMap((value) => [value >> 8, value & 255]))
const u32 = (...values: number[]): Buffer => u16(...values.flatMap((value) => [value >>> 16, value & 65_535]))

function box(type: string, ...parts: Uint8Array[]): Buffer {
  const size = parts.reduce((sum, part) => sum + part.length, 8)
  return Buffer.concat([u32(size), text(type), ...parts])
}

/** A box that begins with its version and flags. */
function full(type: string, flags: number, ...parts: Uint8Array[]): Buffer {
  return box(type, u32(flags), ...parts)
}

/** No rotation or scaling, as 16.16 and 2.30 fixed point. */
const UNITY = u32(0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)

/** Joins the pictures to a file. */
export function mp4(film: Film): Uint8Array {
  const { frames } = film
  const brands = box('ftyp', text('isom'), u32(0x200), text('isomiso2avc1mp41'))
  // The index tells where the pictures begin, which depends on its own size only.
  const begin = brands.length + index(film, 0).length + 8
  const body = frames.flatMap((frame) => [u32(frame.length), frame])
  return Buffer.concat([brands, index(film, begin), box('mdat', ...body)])
}

function index(film: Film, begin: number): Buffer {
  const { width, height, durationMs } = film
  const ticks = durationMs * film.framesPerSecond
  const header = full('mvhd', 0, u32(0, 0, 1000, durationMs, 0x10000), u16(0x100, 0), u32(0, 0), UNITY, Buffer.alloc(24), u32(2))
  const track = full('tkhd', 3, u32(0, 0, 1, 0, durationMs, 0, 0), u16(0, 0, 0, 0), UNITY, u32(width * 0x10000, height * 0x10000))
  const media = box(
    'mdia',
    full('mdhd', 0, u32(0, 0, film.framesPerSecond * TICKS_PER_FRAME, ticks), u16(0x55c4, 0)), // 0x55c4: language undetermined
    full('hdlr', 0, u32(0), text('vide'), u32(0, 0, 0), text('preview\0')),
    box('minf', full('vmhd', 1, u16(0, 0, 0, 0)), box('dinf', full('dref', 0, u32(1), full('url ', 1))), sampleTable(film, begin, ticks)),
  )
  return box('moov', header, box('trak', track, media))
}

function sampleTable({ width, height, sps, pps, frames, keyFrames }: Film, begin: number, ticks: number): Buffer {
  const one = (count: number, parameters: Uint8Array) => [Buffer.of(count), u16(parameters.length), parameters]
  const config = box('avcC', Buffer.of(1), sps.subarray(1, 4), Buffer.of(0xff), ...one(0xe1, sps), ...one(1, pps))
  const colours = box('colr', text('nclx'), u16(1, 1, 1), Buffer.of(0)) // BT.709, limited range
  // One picture per sample, at 72 dots an inch, with 24 bits of colour and no palette.
  const facts = [u16(0, 0, 0, 1), Buffer.alloc(16), u16(width, height, 0x48, 0, 0x48, 0, 0, 0, 1), Buffer.alloc(32), u16(0x18, 0xffff)]
  const entry = box('avc1', ...facts, config, colours)
  const last = ticks - (frames.length - 1) * TICKS_PER_FRAME
  const times = frames.length === 1 ? u32(1, 1, last) : u32(2, frames.length - 1, TICKS_PER_FRAME, 1, last)
  return box(
    'stbl',
    full('stsd', 0, u32(1), entry),
    full('stts', 0, times),
    full('stss', 0, u32(keyFrames.length, ...keyFrames.map((frame) => frame + 1))),
    full('stsc', 0, u32(1, 1, frames.length, 1)),
    full('stsz', 0, u32(0, frames.length, ...frames.map((frame) => frame.length + 4))),
    full('stco', 0, u32(1, begin)),
  )
}
