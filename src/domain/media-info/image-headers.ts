/** The headers of PNG, JPEG, WebP and GIF. Pure. */
import { NOTHING, textAt, viewOf, type Header, type Piece } from './header.ts'

/** PNG (W3C, third edition), 11.2.1 IHDR; 11.3.1 tRNS makes a picture without an alpha channel transparent; 11.3.4 acTL animates it. */
export function pngHeader(bytes: Uint8Array): Header {
  if (bytes.length < 33 || textAt(bytes, 12, 4) !== 'IHDR') return NOTHING
  const view = viewOf(bytes)
  const header = { ...NOTHING, width: view.getUint32(16), height: view.getUint32(20), alpha: [4, 6].includes(bytes[25] ?? 0) }
  for (let at = 33; at + 12 <= bytes.length; at += 12 + view.getUint32(at)) {
    const type = textAt(bytes, at + 4, 4)
    if (type === 'IDAT') break
    if (type === 'tRNS') header.alpha = true
    if (type === 'acTL') header.animated = view.getUint32(at + 8) > 1
  }
  return header
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

/** EXIF 2.32, 4.6.4: tag 0x0112 of the first directory; 1 when it is not there or makes no sense. */
function exifOrientation(tiff: Uint8Array): number {
  if (tiff.length < 14) return 1
  const view = viewOf(tiff)
  const little = textAt(tiff, 0, 2) === 'II'
  const directory = view.getUint32(4, little)
  if (directory + 2 > tiff.length) return 1
  const entries = view.getUint16(directory, little)
  for (let entry = directory + 2; entry + 12 <= Math.min(tiff.length, directory + 2 + 12 * entries); entry += 12) {
    if (view.getUint16(entry, little) !== 0x0112) continue
    const value = view.getUint16(entry + 8, little)
    return value >= 1 && value <= 8 ? value : 1
  }
  return 1
}
