/** The header of HEIC and AVIF (HEIF, ISO/IEC 23008-12): items within `meta`, and tracks within `moov`. Pure. */
import { NOTHING, textAt, viewOf, type Header, type Piece } from './header.ts'
import { boxes, type Box } from './mp4-header.ts'

/** Sequences, and pictures of several views or layers (10.2). */
const SEVERAL = new Set(['avis', 'msf1', 'heim', 'heis'])
/** Items that are no pictures by themselves. */
const OTHER_ITEMS = new Set(['Exif', 'mime', 'uri ', 'tmap'])

/** Size by the largest picture, whose tiles and thumbnails are smaller; several pictures by the major brand, by a track, or by items that are shown each for itself. */
export function heifHeader(prefix: Uint8Array, totalBytes: number | null, rest: Piece): Header {
  const found = childOf(prefix, { type: '', from: 0, to: prefix.length }, 'meta')
  // After its version and flags (8.11.1).
  const meta = found && { ...found, from: found.from + 4 }
  const header = { ...NOTHING, ...(meta && sizeOf(prefix, meta)) }
  if (SEVERAL.has(textAt(prefix, 8, 4)) || (meta && picturesIn(prefix, meta) > 1)) return { ...header, animated: true }
  const moov = boxes(rest.bytes, 0, rest.bytes.length, ({ type }) => type === 'moov')
  const next = rest.at + moov.end
  return {
    ...header,
    animated: moov.found !== null,
    continuesAt: !moov.found && moov.end > 0 && next < (totalBytes ?? Infinity) ? next : null,
  }
}

const childOf = (bytes: Uint8Array, { from, to }: Box, type: string): Box | null => boxes(bytes, from, to, (box) => box.type === type).found

/** The bytes of a box behind its version and flags. */
const contentOf = (bytes: Uint8Array, box: Box): Uint8Array => bytes.subarray(box.from + 4, Math.min(box.to, bytes.length))

/** The largest `ispe` (6.5.3), turned as `irot` (6.5.10) says. */
function sizeOf(bytes: Uint8Array, meta: Box): Pick<Header, 'width' | 'height'> {
  const properties = childOf(bytes, meta, 'iprp')
  const list = properties && childOf(bytes, properties, 'ipco')
  let size = { width: 0, height: 0 }
  let turned = false
  if (list)
    boxes(bytes, list.from, list.to, (box) => {
      const content = contentOf(bytes, box)
      if (box.type === 'irot') turned = ((bytes[box.from] ?? 0) & 1) === 1
      if (box.type !== 'ispe' || content.length < 8) return false
      const [width, height] = [viewOf(content).getUint32(0), viewOf(content).getUint32(4)]
      if (width * height > size.width * size.height) size = { width, height }
      return false
    })
  if (size.width === 0) return { width: null, height: null }
  return turned ? { width: size.height, height: size.width } : size
}

/** Items (8.11.6) that are neither hidden, nor thumbnails, nor parts of others (8.11.12). */
function picturesIn(bytes: Uint8Array, meta: Box): number {
  const shown = new Set<number>()
  const items = childOf(bytes, meta, 'iinf')
  // After the number of entries, which is 16 bits long in version 0.
  if (items)
    boxes(bytes, items.from + (bytes[items.from] === 0 ? 6 : 8), items.to, (box) => {
      const content = contentOf(bytes, box)
      const [version = 0, , , flags = 0] = bytes.subarray(box.from, box.from + 4)
      const at = version === 3 ? 4 : 2
      if (box.type !== 'infe' || version < 2 || content.length < at + 6) return false
      if ((flags & 1) === 0 && !OTHER_ITEMS.has(textAt(content, at + 2, 4))) shown.add(idAt(content, 0, at))
      return false
    })
  const references = childOf(bytes, meta, 'iref')
  if (references)
    boxes(bytes, references.from + 4, references.to, ({ type, from, to }) => {
      const size = bytes[references.from] === 0 ? 2 : 4
      const content = bytes.subarray(from, Math.min(to, bytes.length))
      if (type === 'thmb' || type === 'auxl') shown.delete(idAt(content, 0, size))
      if (type === 'dimg') for (let at = size + 2; at + size <= content.length; at += size) shown.delete(idAt(content, at, size))
      return false
    })
  return shown.size
}

/** An id of 16 or 32 bits; 0, which no item has, beyond the bytes. */
function idAt(bytes: Uint8Array, at: number, size: number): number {
  if (at + size > bytes.length) return 0
  return size === 2 ? viewOf(bytes).getUint16(at) : viewOf(bytes).getUint32(at)
}
