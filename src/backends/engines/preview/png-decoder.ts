/** PNG decoder (W3C PNG specification, third edition) in plain JavaScript: pictures that are not interlaced, of every colour type and depth. */
import { inflateSync } from 'node:zlib'

/** Straight RGBA, 8 bits a channel, row by row. */
export type Picture = { width: number; height: number; rgba: Uint8Array }

type Header = { width: number; height: number; depth: number; type: number; interlaced: boolean }
type Chunks = { header: Header; palette: Uint8Array; transparency: Uint8Array; data: Uint8Array }

const SIGNATURE = '\x89PNG\r\n\x1a\n'
/** Samples of a pixel by colour type (11.2.1). */
const SAMPLES: Record<number, number> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 }
const DEPTHS: Record<number, readonly number[]> = { 0: [1, 2, 4, 8, 16], 2: [8, 16], 3: [1, 2, 4, 8], 4: [8, 16], 6: [8, 16] }

/** Decodes a file; null for anything that is no whole PNG, is interlaced, or has more than `pixels`. */
export function decodePng(file: Uint8Array, pixels: number): Picture | null {
  const chunks = chunksOf(Buffer.from(file.buffer, file.byteOffset, file.byteLength))
  if (!chunks || chunks.header.interlaced || chunks.header.width * chunks.header.height > pixels) return null
  const { width, height, depth, type } = chunks.header
  const samples = SAMPLES[type] ?? 0
  if (width === 0 || height === 0 || !DEPTHS[type]?.includes(depth)) return null
  const stride = Math.ceil((width * samples * depth) / 8)
  const rows = inflated(chunks.data, (stride + 1) * height)
  if (!rows || !unfilter(rows, stride, Math.max(1, (samples * depth) / 8))) return null
  const rgba = new Uint8Array(width * height * 4)
  const pixel = pixelReader(chunks)
  for (let y = 0, at = 0; y < height; y++) {
    const row = rows.subarray(y * (stride + 1) + 1, (y + 1) * (stride + 1))
    for (let x = 0; x < width; x++, at += 4) pixel(row, x, rgba, at)
  }
  return { width, height, rgba }
}

/** The chunks that decide the pixels (5.3). Others, and checksums, are ignored: a fault in the data breaks its compression. */
function chunksOf(file: Buffer): Chunks | null {
  if (file.toString('latin1', 0, 8) !== SIGNATURE || file.toString('latin1', 12, 16) !== 'IHDR' || file.length < 33) return null
  const header = {
    width: file.readUInt32BE(16),
    height: file.readUInt32BE(20),
    depth: file[24] ?? 0,
    type: file[25] ?? 0,
    interlaced: file[28] !== 0,
  }
  let palette = new Uint8Array()
  let transparency = new Uint8Array()
  const data: Uint8Array[] = []
  for (let at = 33; at + 8 <= file.length;) {
    const content = new Uint8Array(file.subarray(at + 8, at + 8 + file.readUInt32BE(at)))
    const name = file.toString('latin1', at + 4, at + 8)
    if (name === 'PLTE') palette = content
    else if (name === 'tRNS') transparency = content
    else if (name === 'IDAT') data.push(content)
    else if (name === 'IEND') break
    at += 12 + file.readUInt32BE(at)
  }
  return { header, palette, transparency, data: Buffer.concat(data) }
}

/** The rows, or null when they are not exactly as long as the header says. */
function inflated(data: Uint8Array, bytes: number): Buffer | null {
  try {
    const rows = inflateSync(data, { maxOutputLength: bytes })
    return rows.length === bytes ? rows : null
  } catch {
    return null
  }
}

/** Reverses the filter of each row in place (9.2). False for an unknown filter. */
function unfilter(rows: Uint8Array, stride: number, step: number): boolean {
  for (let start = 0; start < rows.length; start += stride + 1) {
    const filter = rows[start] ?? 0
    if (filter > 4) return false
    for (let i = start + 1; i <= start + stride; i++) {
      const left = i - step > start ? (rows[i - step] ?? 0) : 0
      const up = start > 0 ? (rows[i - stride - 1] ?? 0) : 0
      const corner = start > 0 && i - step > start ? (rows[i - step - stride - 1] ?? 0) : 0
      const guess = filter === 1 ? left : filter === 2 ? up : filter === 3 ? (left + up) >> 1 : filter === 4 ? paeth(left, up, corner) : 0
      rows[i] = ((rows[i] ?? 0) + guess) & 255
    }
  }
  return true
}

/** Whichever of the three neighbours is nearest to left + up - corner (9.4). */
export function paeth(left: number, up: number, corner: number): number {
  const toLeft = Math.abs(up - corner)
  const toUp = Math.abs(left - corner)
  const toCorner = Math.abs(left + up - 2 * corner)
  return toLeft <= toUp && toLeft <= toCorner ? left : toUp <= toCorner ? up : corner
}

type PixelReader = (row: Uint8Array, x: number, rgba: Uint8Array, at: number) => void

function pixelReader({ header: { depth, type }, palette, transparency }: Chunks): PixelReader {
  const samples = SAMPLES[type] ?? 1
  // The high byte of 16 bits; below a byte, the bits from the left.
  const sample = (row: Uint8Array, index: number): number => {
    if (depth >= 8) return row[(index * depth) / 8] ?? 0
    const bit = index * depth
    return ((row[bit >> 3] ?? 0) >> (8 - depth - (bit & 7))) & ((1 << depth) - 1)
  }
  const scale = depth < 8 ? 255 / ((1 << depth) - 1) : 1
  if (type === 3) {
    return (row, x, rgba, at) => {
      const entry = sample(row, x)
      for (let c = 0; c < 3; c++) rgba[at + c] = palette[entry * 3 + c] ?? 0
      rgba[at + 3] = transparency[entry] ?? 255
    }
  }
  const hasAlpha = type === 4 || type === 6
  const colours = hasAlpha ? samples - 1 : samples
  return (row, x, rgba, at) => {
    for (let c = 0; c < 3; c++) rgba[at + c] = sample(row, x * samples + (colours === 1 ? 0 : c)) * scale
    rgba[at + 3] = hasAlpha ? sample(row, x * samples + colours) : 255
  }
}
