/** The header of MP4 and QuickTime (ISO/IEC 14496-12): boxes within boxes, its index `moov` in front or at the end. Pure. */
import { NOTHING, textAt, viewOf, type Header, type Piece } from './header.ts'

export type Box = { type: string; /** Of its content, within the bytes; `to` may lie beyond them. */ from: number; to: number }

const PICTURES = new Set(['heic', 'heix', 'heim', 'heis', 'mif1', 'msf1'])

/** What the brands of `ftyp` say (4.3): the major one, and for pictures of any coding the others. */
export function mp4Brand(bytes: Uint8Array): string {
  const brand = textAt(bytes, 8, 4)
  if (brand === 'avif' || brand === 'avis') return 'image/avif'
  if (PICTURES.has(brand))
    return /^(.{4})*avi[fs]/s.test(textAt(bytes, 16, Math.min(viewOf(bytes).getUint32(0), 256) - 16)) ? 'image/avif' : 'image/heic'
  if (brand === 'qt  ') return 'video/quicktime'
  return brand === 'M4A ' || brand === 'M4B ' ? 'audio/mp4' : 'video/mp4'
}

/** Looks for `moov` from the beginning of `rest` on, from box to box. */
export function mp4Header(_prefix: Uint8Array, totalBytes: number | null, rest: Piece): Header {
  const moov = boxes(rest.bytes, 0, rest.bytes.length, (box) => box.type === 'moov')
  if (moov.found) return movie(rest.bytes, moov.found)
  const next = rest.at + moov.end
  return { ...NOTHING, continuesAt: moov.end > 0 && next < (totalBytes ?? Infinity) ? next : null }
}

/** Walks the boxes of a range until one is wanted. `end` is where the next box would begin, 0 when the walk cannot go on. */
export function boxes(bytes: Uint8Array, from: number, to: number, wanted: (box: Box) => boolean): { found: Box | null; end: number } {
  const view = viewOf(bytes)
  let at = from
  while (at + 8 <= Math.min(to, bytes.length)) {
    const size32 = view.getUint32(at)
    const large = size32 === 1
    if (large && at + 16 > bytes.length) return { found: null, end: at }
    // 0: to the end of the file (4.2).
    const size = size32 === 0 ? to - at : large ? Number(view.getBigUint64(at + 8)) : size32
    if (size < (large ? 16 : 8) || !Number.isSafeInteger(size)) return { found: null, end: 0 }
    const box = { type: String.fromCharCode(...bytes.subarray(at + 4, at + 8)), from: at + (large ? 16 : 8), to: at + size }
    if (wanted(box)) return { found: box, end: at }
    at += size
  }
  return { found: null, end: at }
}

/** Length from `mvhd` (8.2.2), or from `mehd` (8.8.2) when the movie is in fragments; size from the first track that has one. */
function movie(bytes: Uint8Array, moov: Box): Header {
  let durationMs: number | null = null
  let timescale = 0
  let size: { width: number; height: number } | null = null
  boxes(bytes, moov.from, moov.to, (box) => {
    const within = bytes.subarray(box.from, Math.min(box.to, bytes.length))
    if (box.type === 'mvhd') {
      timescale = timescaleOf(within)
      durationMs = inMs(lengthAt(within, within[0] === 1 ? 24 : 16), timescale)
    }
    if (box.type === 'mvex') {
      const mehd = boxes(bytes, box.from, box.to, ({ type }) => type === 'mehd').found
      if (mehd && durationMs === null) durationMs = inMs(lengthAt(bytes.subarray(mehd.from, Math.min(mehd.to, bytes.length)), 4), timescale)
    }
    if (box.type === 'trak' && size === null) {
      const tkhd = boxes(bytes, box.from, box.to, ({ type }) => type === 'tkhd').found
      if (tkhd) size = sizeOf(bytes.subarray(tkhd.from, Math.min(tkhd.to, bytes.length)))
    }
    return false
  })
  return { ...NOTHING, ...(size as { width: number; height: number } | null), durationMs }
}

function timescaleOf(mvhd: Uint8Array): number {
  const at = mvhd[0] === 1 ? 20 : 12
  return at + 4 <= mvhd.length ? viewOf(mvhd).getUint32(at) : 0
}

/** A length of 64 bits in version 1 of a box, else of 32; null when it is unknown: none, or all ones. */
function lengthAt(box: Uint8Array, at: number): number | null {
  const wide = box[0] === 1
  if (at + (wide ? 8 : 4) > box.length) return null
  const length = wide ? viewOf(box).getBigUint64(at) : BigInt(viewOf(box).getUint32(at))
  return length === 0n || length === (wide ? 0xffff_ffff_ffff_ffffn : 0xffff_ffffn) ? null : Number(length)
}

const inMs = (length: number | null, timescale: number): number | null =>
  length === null || timescale === 0 ? null : Math.round((length / timescale) * 1000)

/** The size of a track as it is presented (8.3.2): 16.16, turned by its matrix. */
function sizeOf(tkhd: Uint8Array): { width: number; height: number } | null {
  const end = tkhd[0] === 1 ? 96 : 84
  if (tkhd.length < end) return null
  const view = viewOf(tkhd)
  const [width, height] = [view.getUint32(end - 8) >>> 16, view.getUint32(end - 4) >>> 16]
  if (width === 0 || height === 0) return null
  const turned = view.getInt32(end - 44) === 0 && view.getInt32(end - 40) !== 0
  return turned ? { width: height, height: width } : { width, height }
}
