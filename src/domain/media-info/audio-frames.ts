/** The frames of MP3 and FLAC, by which one sees that the end of a file is missing. Pure. */
import { mp3FrameAt } from './audio-headers.ts'
import { viewOf } from './header.ts'

/** Follows the frames of MP3 from the beginning of the bytes on. `to`: where they end; `lacks`: bytes of the frame there that lie beyond, 0 when there is no frame. */
export function followMp3(bytes: Uint8Array): { to: number; lacks: number } {
  let at = 0
  for (;;) {
    const frame = at + 4 <= bytes.length ? mp3FrameAt(bytes, at) : null
    if (frame === null) return { to: at, lacks: 0 }
    if (at + frame.bytes > bytes.length) return { to: at, lacks: at + frame.bytes - bytes.length }
    at += frame.bytes
  }
}

/** The last frame of FLAC that begins within the bytes, or null: the number of the sample after it, and whether all of it is there. `blockSize`: that of STREAMINFO. */
export function lastFlacFrame(tail: Uint8Array, blockSize: number): { nextSample: number; isWhole: boolean } | null {
  for (let at = tail.length - 6; at >= 0; at--) {
    const end = tail[at] === 0xff && (tail[at + 1] ?? 0) >> 1 === 0x7c ? frameEnd(tail.subarray(at, at + 16), blockSize) : null
    if (end !== null) return { nextSample: end, isWhole: crc16(tail.subarray(at)) === 0 }
  }
  return null
}

/** A frame header of FLAC (RFC 9639, 9.1); null when its checksum says that it is none. */
function frameEnd(header: Uint8Array, streamBlockSize: number): number | null {
  const [, second = 0, third = 0] = header
  const number = codedNumber(header.subarray(4))
  if (number === null) return null
  const sizeAt = 4 + number.bytes
  const [sizeCode, rateCode] = [third >> 4, third & 15]
  const sizeBytes = sizeCode === 6 ? 1 : sizeCode === 7 ? 2 : 0
  const rateBytes = rateCode === 12 ? 1 : rateCode === 13 || rateCode === 14 ? 2 : 0
  const checkedAt = sizeAt + sizeBytes + rateBytes
  if (checkedAt >= header.length || crc8(header.subarray(0, checkedAt)) !== header[checkedAt]) return null
  const view = viewOf(header)
  const uncommon = sizeBytes === 1 ? view.getUint8(sizeAt) + 1 : view.getUint16(sizeAt) + 1
  const samples = sizeBytes > 0 ? uncommon : sizeCode === 1 ? 192 : sizeCode < 6 ? 576 << (sizeCode - 2) : 256 << (sizeCode - 8)
  return (second & 1) === 1 ? number.value + samples : number.value * streamBlockSize + samples
}

/** A number coded as UTF-8 codes characters, of up to seven bytes (9.1.5). */
function codedNumber(bytes: Uint8Array): { value: number; bytes: number } | null {
  const first = bytes[0] ?? 0xff
  const ones = Math.clz32(~(first << 24))
  if (ones === 0) return { value: first, bytes: 1 }
  if (ones === 1 || ones === 8 || bytes.length < ones) return null
  const more = bytes.subarray(1, ones)
  return { value: more.reduce((value, byte) => value * 64 + (byte & 63), first & (0x7f >> ones)), bytes: ones }
}

/** CRC-16 with the polynomial x¹⁶ + x¹⁵ + x² + 1 (9.3): 0 over a frame with its checksum. */
function crc16(bytes: Uint8Array): number {
  let crc = 0
  for (const byte of bytes) {
    crc ^= byte << 8
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x18005 : 0)) & 0xffff
  }
  return crc
}

/** CRC-8 with the polynomial x⁸ + x² + x + 1 (9.1.8). */
function crc8(bytes: Uint8Array): number {
  let crc = 0
  for (const byte of bytes) {
    crc ^= byte
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x80 ? 0x107 : 0)) & 0xff
  }
  return crc
}
