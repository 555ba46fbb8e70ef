/** The headers of WAV, MP3 and FLAC: how long they are. Pure. */
import { NOTHING, textAt, viewOf, type Header, type Piece } from './header.ts'

/** RIFF/WAVE: the bytes of `data` by the rate of `fmt `. A file that was streamed does not know its length; then it goes to the end. */
export function wavHeader(bytes: Uint8Array, totalBytes: number | null): Header {
  const view = viewOf(bytes)
  let bytesPerSecond = 0
  for (let at = 12; at + 8 <= bytes.length;) {
    const size = view.getUint32(at + 4, true)
    const type = textAt(bytes, at, 4)
    if (type === 'fmt ' && at + 20 <= bytes.length) bytesPerSecond = view.getUint32(at + 16, true)
    if (type === 'data') {
      const left = totalBytes === null ? null : totalBytes - at - 8
      const known = size !== 0 && size !== 0xffff_ffff
      const data = known ? Math.min(size, left ?? size) : left
      return { ...NOTHING, durationMs: data === null || bytesPerSecond === 0 ? null : Math.round((data / bytesPerSecond) * 1000) }
    }
    at += 8 + size + (size % 2)
  }
  return NOTHING
}

/** FLAC (RFC 9639, 8.2): STREAMINFO is always the first block. */
export function flacHeader(bytes: Uint8Array): Header {
  if (bytes.length < 26) return NOTHING
  const bits = viewOf(bytes).getBigUint64(18)
  const [rate, samples] = [Number(bits >> 44n), Number(bits & 0xf_ffff_ffffn)]
  return { ...NOTHING, durationMs: rate === 0 || samples === 0 ? null : Math.round((samples / rate) * 1000) }
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

/** MPEG audio: the count of frames that a Xing, Info or VBRI header tells, else the size by the rate of the first frame. An ID3v2 tag goes before. */
export function mp3Header(prefix: Uint8Array, totalBytes: number | null, rest: Piece): Header {
  const begins = tagBytes(prefix)
  if (begins >= prefix.length && rest.at === 0) return { ...NOTHING, continuesAt: begins < (totalBytes ?? Infinity) ? begins : null }
  const bytes = rest.at === 0 ? prefix.subarray(begins) : rest.bytes
  const frame = frameOf(bytes)
  if (frame === null) return NOTHING
  const frames = framesOf(bytes, frame)
  if (frames !== null) return { ...NOTHING, durationMs: Math.round((frames * frame.samples * 1000) / frame.rate) }
  return { ...NOTHING, durationMs: totalBytes === null ? null : Math.round(((totalBytes - begins) * 8) / frame.kbps) }
}

/** How long an ID3v2 tag is (ID3v2.4, 3.1): four bytes of seven bits each. */
function tagBytes(bytes: Uint8Array): number {
  if (textAt(bytes, 0, 3) !== 'ID3' || bytes.length < 10) return 0
  const footer = ((bytes[5] ?? 0) & 0x10) === 0 ? 0 : 10
  return [6, 7, 8, 9].reduce((size, at) => size * 128 + ((bytes[at] ?? 0) & 0x7f), 0) + 10 + footer
}

type Frame = { at: number; rate: number; kbps: number; samples: number; sideBytes: number }

/** The first frame's header (ISO/IEC 11172-3, 2.4.1.3), within some padding. */
function frameOf(bytes: Uint8Array): Frame | null {
  for (let at = 0; at + 4 <= Math.min(bytes.length, 4096); at++) {
    if (bytes[at] !== 0xff || ((bytes[at + 1] ?? 0) & 0xe0) !== 0xe0) continue
    const [second = 0, third = 0, fourth = 0] = bytes.subarray(at + 1)
    const version = (second >> 3) & 3
    const layer = 4 - ((second >> 1) & 3)
    const rate = RATES[(third >> 2) & 3]
    const generation = version === 3 ? 1 : 2
    const kbps = BITRATES[`${generation}.${layer}`]?.[(third >> 4) - 1]
    if (version === 1 || rate === undefined || kbps === undefined) continue
    const mono = fourth >> 6 === 3
    const sideBytes = generation === 1 ? (mono ? 17 : 32) : mono ? 9 : 17
    const samples = layer === 1 ? 384 : layer === 2 || generation === 1 ? 1152 : 576
    return { at, rate: rate / (version === 3 ? 1 : version === 2 ? 2 : 4), kbps, samples, sideBytes }
  }
  return null
}

function framesOf(bytes: Uint8Array, { at, sideBytes }: Frame): number | null {
  const view = viewOf(bytes)
  const xing = at + 4 + sideBytes
  if (xing + 12 <= bytes.length && ['Xing', 'Info'].includes(textAt(bytes, xing, 4))) {
    return (view.getUint32(xing + 4) & 1) === 1 ? view.getUint32(xing + 8) : null
  }
  const vbri = at + 36
  return vbri + 18 <= bytes.length && textAt(bytes, vbri, 4) === 'VBRI' ? view.getUint32(vbri + 14) : null
}
