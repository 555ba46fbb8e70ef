/** The headers of WAV, MP3, FLAC and Ogg: how long they are. Pure. */
import { NOTHING, textAt, viewOf, type Header, type Piece } from './header.ts'

/** RIFF/WAVE: the bytes of `data` by the rate of `fmt `. A file that was streamed does not know its length; then it goes to the end. */
export function wavHeader(bytes: Uint8Array, totalBytes: number | null): Header {
  const data = wavData(bytes)
  if (data === null) return NOTHING
  const left = totalBytes === null ? null : totalBytes - data.at
  const samples = data.bytes === null ? left : Math.min(data.bytes, left ?? data.bytes)
  return {
    ...NOTHING,
    durationMs: samples === null || samples < 0 || data.perSecond === 0 ? null : Math.round((samples / data.perSecond) * 1000),
  }
}

/** Where the samples of RIFF/WAVE begin, how many bytes they have, null in a file that was streamed, and how many a second takes, 0 when unknown. */
export function wavData(bytes: Uint8Array): { at: number; bytes: number | null; perSecond: number } | null {
  const view = viewOf(bytes)
  let perSecond = 0
  for (let at = 12; at + 8 <= bytes.length;) {
    const size = view.getUint32(at + 4, true)
    const type = textAt(bytes, at, 4)
    if (type === 'fmt ' && at + 20 <= bytes.length) perSecond = view.getUint32(at + 16, true)
    if (type === 'data') return { at: at + 8, bytes: size === 0 || size >= STREAMED ? null : size, perSecond }
    at += 8 + size + (size % 2)
  }
  return null
}

/** Writers that cannot seek tell this length or more; ffmpeg and Python's wave among them. */
const STREAMED = 0x7fff_0000

/** FLAC (RFC 9639, 8.2): STREAMINFO is always the first block. */
export function flacHeader(bytes: Uint8Array): Header {
  const { rate, samples } = flacStream(bytes)
  return { ...NOTHING, durationMs: rate === 0 || samples === 0 ? null : Math.round((samples / rate) * 1000) }
}

/** STREAMINFO of FLAC: the largest block, samples a second and samples in all; 0 where a stream does not know them. */
export function flacStream(bytes: Uint8Array): { blockSize: number; rate: number; samples: number } {
  if (bytes.length < 26) return { blockSize: 0, rate: 0, samples: 0 }
  const bits = viewOf(bytes).getBigUint64(18)
  return { blockSize: viewOf(bytes).getUint16(10), rate: Number(bits >> 44n), samples: Number(bits & 0xf_ffff_ffffn) }
}

const RATES = [44_100, 48_000, 32_000]
/** Kilobits a second by MPEG 1 or 2, and layer 1 to 3. */
const BITRATES: Record<string, number[]> = {
  '1.1': [32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448],
  '1.2': [32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384],
  '1.3': [32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  '2.1': [32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256],
  '2.2': [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
  '2.3': [8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
}

/**
 * MPEG audio: the count of frames that a Xing, Info or VBRI header tells for about the bytes of the file, else the size by the rate of the first frame. An ID3v2 tag goes before. Of files that
 * were joined, the header tells the first one's.
 */
export function mp3Header(prefix: Uint8Array, totalBytes: number | null, rest: Piece): Header {
  const begins = tagBytes(prefix)
  if (begins >= prefix.length && rest.at === 0) return { ...NOTHING, continuesAt: begins < (totalBytes ?? Infinity) ? begins : null }
  const bytes = rest.at === 0 ? prefix.subarray(begins) : rest.bytes
  const frame = firstMp3Frame(bytes)
  if (frame === null) return NOTHING
  const { frames, size } = countOf(bytes, frame)
  if (frames !== null && Math.abs((totalBytes ?? size) - begins - size) < size / 20)
    return { ...NOTHING, durationMs: Math.round((frames * frame.samples * 1000) / frame.rate) }
  if (totalBytes === null || totalBytes < begins) return NOTHING
  const lasts = (kbps: number): number => Math.round(((totalBytes - begins) * 8) / kbps)
  return { ...NOTHING, durationMs: lasts(frame.kbps), atMostMs: lasts(frame.kbpsMin) }
}

/** More than a page of Ogg can have. */
const OGG_TAIL = 66_000
/** Pages last for a second and less. */
const LONGEST_PAGE_SECONDS = 3

/** Ogg (RFC 3533) with Vorbis or Opus: the sample at which the last page ends, unless it is one of another stream that follows, or the first one begins later than a page lasts. */
export function oggHeader(prefix: Uint8Array, totalBytes: number | null, rest: Piece): Header {
  const type = textAt(prefix, 28, 8)
  if (prefix.length < 44 || (!type.startsWith('\x01vorbis') && type !== 'OpusHead')) return NOTHING
  // Opus counts at this rate whatever it was recorded at (RFC 7845, section 4).
  const rate = type === 'OpusHead' ? 48_000 : viewOf(prefix).getUint32(40, true)
  const tail = Math.max(0, (totalBytes ?? 0) - OGG_TAIL)
  if (totalBytes === null || rate === 0) return NOTHING
  if (rest.at + rest.bytes.length < totalBytes) return { ...NOTHING, continuesAt: tail > rest.at ? tail : null }
  const page = Buffer.from(rest.bytes.buffer, rest.bytes.byteOffset, rest.bytes.length).lastIndexOf('OggS')
  if (page < 0 || page + 14 > rest.bytes.length) return NOTHING
  const samples = Number(viewOf(rest.bytes).getBigInt64(page + 6, true))
  const isOther = page + 18 > rest.bytes.length || viewOf(rest.bytes).getUint32(page + 14, true) !== viewOf(prefix).getUint32(14, true)
  if (isOther || firstSampleOf(prefix) > LONGEST_PAGE_SECONDS * rate) return NOTHING
  return { ...NOTHING, durationMs: samples > 0 ? Math.round((samples / rate) * 1000) : null }
}

/** The sample at which the first page of Ogg with audio ends, which is far from 0 in a recording of a live stream (RFC 7845, section 4); 0 where it is not in the bytes. */
function firstSampleOf(bytes: Uint8Array): number {
  const view = viewOf(bytes)
  for (let at = 0; at + 27 <= bytes.length && textAt(bytes, at, 4) === 'OggS';) {
    const samples = Number(view.getBigInt64(at + 6, true))
    if (samples > 0) return samples
    const sizes = bytes.subarray(at + 27, at + 27 + (bytes[at + 26] ?? 0))
    at += 27 + sizes.length + sizes.reduce((sum, size) => sum + size, 0)
  }
  return 0
}

/** How long an ID3v2 tag is (ID3v2.4, 3.1): four bytes of seven bits each. */
export function tagBytes(bytes: Uint8Array): number {
  if (textAt(bytes, 0, 3) !== 'ID3' || bytes.length < 10) return 0
  const footer = ((bytes[5] ?? 0) & 0x10) === 0 ? 0 : 10
  return [6, 7, 8, 9].reduce((size, at) => size * 128 + ((bytes[at] ?? 0) & 0x7f), 0) + 10 + footer
}

type Frame = { at: number; rate: number; kbps: number; kbpsMin: number; samples: number; sideBytes: number; bytes: number }

/** The first frame's header, within some padding. */
export function firstMp3Frame(bytes: Uint8Array): Frame | null {
  for (let at = 0; at + 4 <= Math.min(bytes.length, 4096); at++) {
    const frame = mp3FrameAt(bytes, at)
    if (frame !== null) return frame
  }
  return null
}

/** The header of the frame that begins there (ISO/IEC 11172-3, 2.4.1.3), or null. `bytes`: of the whole frame. */
export function mp3FrameAt(bytes: Uint8Array, at: number): Frame | null {
  if (bytes[at] !== 0xff || ((bytes[at + 1] ?? 0) & 0xe0) !== 0xe0) return null
  const [second = 0, third = 0, fourth = 0] = bytes.subarray(at + 1, at + 4)
  const version = (second >> 3) & 3
  const layer = 4 - ((second >> 1) & 3)
  const rate = RATES[(third >> 2) & 3]
  const generation = version === 3 ? 1 : 2
  const bitrates = BITRATES[`${generation}.${layer}`] ?? []
  const [kbps, kbpsMin = 0] = [bitrates[(third >> 4) - 1], bitrates[0]]
  if (version === 1 || rate === undefined || kbps === undefined) return null
  const mono = fourth >> 6 === 3
  const sideBytes = generation === 1 ? (mono ? 17 : 32) : mono ? 9 : 17
  const samples = layer === 1 ? 384 : layer === 2 || generation === 1 ? 1152 : 576
  const perSecond = rate / (version === 3 ? 1 : version === 2 ? 2 : 4)
  const padding = (third >> 1) & 1
  const size =
    layer === 1 ? (Math.floor((12_000 * kbps) / perSecond) + padding) * 4 : Math.floor((samples * kbps * 125) / perSecond) + padding
  return { at, rate: perSecond, kbps, kbpsMin, samples, sideBytes, bytes: size }
}

/** How many frames a header tells, and in how many bytes. */
function countOf(bytes: Uint8Array, { at, sideBytes }: Frame): { frames: number | null; size: number } {
  const view = viewOf(bytes)
  const xing = at + 4 + sideBytes
  if (xing + 16 <= bytes.length && ['Xing', 'Info'].includes(textAt(bytes, xing, 4)))
    return (view.getUint32(xing + 4) & 3) === 3
      ? { frames: view.getUint32(xing + 8), size: view.getUint32(xing + 12) }
      : { frames: null, size: 0 }
  const vbri = at + 36
  return vbri + 18 <= bytes.length && textAt(bytes, vbri, 4) === 'VBRI'
    ? { frames: view.getUint32(vbri + 14), size: view.getUint32(vbri + 10) }
    : { frames: null, size: 0 }
}
