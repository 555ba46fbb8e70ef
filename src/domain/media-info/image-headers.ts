/** The headers of PNG, JPEG, WebP, GIF and TIFF. Pure. */
import { NOTHING, textAt, viewOf, type Header, type Piece } from './header.ts'

/** PNG (W3C, third edition), 11.2.1 IHDR; 11.3.1 tRNS makes a picture without an alpha channel transparent; 11.3.4 acTL animates it. */
export function pngHeader(prefix: Uint8Array, totalBytes: number | null, rest: Piece): Header {
  if (prefix.length < 33 || textAt(prefix, 12, 4) !== 'IHDR') return NOTHING
  const view = viewOf(prefix)
  const header = { ...NOTHING, width: view.getUint32(16), height: view.getUint32(20), alpha: [4, 6].includes(prefix[25] ?? 0) }
  const chunks = viewOf(rest.bytes)
  let at = rest.at === 0 ? 33 : 0
  for (; at + 12 <= rest.bytes.length; at += 12 + chunks.getUint32(at)) {
    const type = textAt(rest.bytes, at + 4, 4)
    if (type === 'IDAT') return header
    if (type === 'tRNS') header.alpha = true
    if (type === 'acTL') return { ...header, animated: chunks.getUint32(at + 8) > 1 }
  }
  // A profile or a text in front may be large.
  return { ...header, continuesAt: at > 0 && rest.at + at < (totalBytes ?? Infinity) ? rest.at + at : null }
}

/** GIF 89a, sections 18 to 27: animated by its second picture. A transparent colour is declared far behind the header: any picture may have one. */
export function gifHeader(prefix: Uint8Array, totalBytes: number | null, rest: Piece): Header {
  if (prefix.length < 13) return NOTHING
  const view = viewOf(prefix)
  const header = { ...NOTHING, width: view.getUint16(6, true), height: view.getUint16(8, true), alpha: true }
  const { animated, continuesAt } =
    rest.at === 0 ? gifBlocks({ at: 0, bytes: prefix }, 13 + colourTableBytes(prefix[10])) : gifData(rest, 0)
  return { ...header, animated, continuesAt: continuesAt !== null && continuesAt < (totalBytes ?? Infinity) ? continuesAt : null }
}

type Frames = Pick<Header, 'animated' | 'continuesAt'>
const STILL: Frames = { animated: false, continuesAt: null }

const colourTableBytes = (flags = 0): number => (flags & 0x80 ? 3 * 2 ** ((flags & 7) + 1) : 0)

/** Walks the blocks from `next` on, up to the data of the first picture. */
function gifBlocks(piece: Piece, next: number): Frames {
  const { bytes } = piece
  while (bytes[next] === 0x21) {
    next += 2
    while (bytes[next]) next += 1 + (bytes[next] ?? 0)
    next++
  }
  return bytes[next] === 0x2c && next + 10 < bytes.length ? gifData(piece, next + 11 + colourTableBytes(bytes[next + 9])) : STILL
}

/** Walks the data from `next` on, the first picture's or an extension's behind it, and what follows, to the second picture or the end. */
function gifData({ at, bytes }: Piece, next: number): Frames {
  for (;;) {
    while (bytes[next]) next += 1 + (bytes[next] ?? 0)
    const block = bytes[next + 1]
    if (block !== undefined && block !== 0x21) return { animated: block === 0x2c, continuesAt: null }
    // The next piece goes on at the end of the data, before whatever follows them.
    if (next + 2 >= bytes.length) return { animated: false, continuesAt: next > 0 ? at + next : null }
    next += 3
  }
}

/** WebP (RFC 9649, section 2): extended, lossless or lossy. */
export function webpHeader(bytes: Uint8Array): Header {
  if (bytes.length < 30) return NOTHING
  const view = viewOf(bytes)
  const uint24 = (at: number): number => view.getUint16(at, true) | ((bytes[at + 2] ?? 0) << 16)
  const kind = textAt(bytes, 12, 4)
  const flags = bytes[20] ?? 0
  if (kind === 'VP8X')
    return { ...NOTHING, width: 1 + uint24(24), height: 1 + uint24(27), alpha: (flags & 0x10) !== 0, animated: (flags & 2) !== 0 }
  if (kind === 'VP8L') {
    const bits = view.getUint32(21, true)
    return { ...NOTHING, width: 1 + (bits & 0x3fff), height: 1 + ((bits >>> 14) & 0x3fff), alpha: ((bits >>> 28) & 1) === 1 }
  }
  return kind === 'VP8 ' ? { ...NOTHING, width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff } : NOTHING
}

/** JPEG (ITU-T T.81, B.1): markers up to the frame header, with EXIF's orientation on the way. The last piece may begin at any marker. */
export function jpegHeader(prefix: Uint8Array, totalBytes: number | null, rest: Piece): Header {
  const first = scan({ at: 0, bytes: prefix }, 2, 1)
  const last = rest.at === 0 ? first : scan(rest, rest.at, first.orientation)
  const goesOn = last.continuesAt !== null && last.continuesAt > rest.at && last.continuesAt < (totalBytes ?? Infinity)
  return goesOn ? last : { ...last, continuesAt: null }
}

function scan({ at, bytes }: Piece, from: number, known: number): Header {
  const view = viewOf(bytes)
  let orientation = known
  let next = from - at
  while (next + 9 <= bytes.length) {
    if (bytes[next] !== 0xff) return { ...NOTHING, orientation }
    const marker = bytes[next + 1] ?? 0
    if (marker === 0xff || (marker >= 0xd0 && marker <= 0xd8) || marker === 1) {
      next += marker === 0xff ? 1 : 2
      continue
    }
    // SOF0 to SOF15, without the tables DHT, JPG and DAC.
    if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      const [height, width] = [view.getUint16(next + 5), view.getUint16(next + 7)]
      return { ...NOTHING, ...(orientation >= 5 ? { width: height, height: width } : { width, height }), orientation }
    }
    // The picture begins, or the file ends.
    if (marker === 0xda || marker === 0xd9) return { ...NOTHING, orientation }
    if (marker === 0xe1 && textAt(bytes, next + 4, 6) === 'Exif\0\0')
      orientation = exifOrientation(bytes.subarray(next + 10, next + 2 + view.getUint16(next + 2)))
    next += 2 + view.getUint16(next + 2)
  }
  return { ...NOTHING, orientation, continuesAt: at + next }
}

/**
 * TIFF 6.0, section 2: its first directory, which may lie at the end of the file. It is several pictures if another one follows that is no
 * reduced copy (`NewSubfileType`).
 */
export function tiffHeader(prefix: Uint8Array, totalBytes: number | null, rest: Piece): Header {
  if (prefix.length < 8) return NOTHING
  const little = textAt(prefix, 0, 2) === 'II'
  const first = viewOf(prefix).getUint32(4, little)
  const { tags, next } = directoryAt(rest.bytes, first - rest.at, little)
  if (next === null) return { ...NOTHING, continuesAt: first > rest.at && first < (totalBytes ?? Infinity) ? first : null }
  const isCopy = ((directoryAt(rest.bytes, next - rest.at, little).tags.get(254) ?? 0) & 1) === 1
  const animated = next !== 0 && next < (totalBytes ?? Infinity) && !isCopy
  const [across = null, down = null] = [tags.get(256), tags.get(257)]
  const orientation = orientationIn(tags)
  const size = orientation >= 5 ? { width: down, height: across } : { width: across, height: down }
  return { ...NOTHING, ...size, orientation, alpha: tags.has(338), animated }
}

/** EXIF 2.32, 4.6.4. */
function exifOrientation(tiff: Uint8Array): number {
  if (tiff.length < 14) return 1
  const little = textAt(tiff, 0, 2) === 'II'
  return orientationIn(directoryAt(tiff, viewOf(tiff).getUint32(4, little), little).tags)
}

/** 1 when it is not there or makes no sense. */
function orientationIn(tags: Map<number, number>): number {
  const value = tags.get(0x0112) ?? 1
  return value >= 1 && value <= 8 ? value : 1
}

/** The first number of each tag of a directory, as far as they are there, and where the next one begins: 0 without one, null when that is beyond the bytes. */
function directoryAt(bytes: Uint8Array, at: number, little: boolean): { tags: Map<number, number>; next: number | null } {
  const tags = new Map<number, number>()
  if (at < 0 || at + 2 > bytes.length) return { tags, next: null }
  const view = viewOf(bytes)
  const end = at + 2 + 12 * view.getUint16(at, little)
  for (let entry = at + 2; entry + 12 <= Math.min(bytes.length, end); entry += 12) {
    const isShort = view.getUint16(entry + 2, little) === 3
    tags.set(view.getUint16(entry, little), isShort ? view.getUint16(entry + 8, little) : view.getUint32(entry + 8, little))
  }
  return { tags, next: end + 4 <= bytes.length ? view.getUint32(end, little) : null }
}
