/** What a mask marks for an edit: its transparent pixels if it has any, its white ones otherwise. */
import { decode, resizePlane, type Image } from './codec.ts'
import { InputError } from './operation-result.ts'

/** Of 255. Pixels marked as much are part of the edit: rather a little more than the mask than an edge of what has to go. */
const MARKED = 64

/**
 * The marked pixels of a picture, 1 where it is to be edited. The mask is scaled to the picture and `grow` pixels wider in every direction.
 * Throws an InputError when it is no picture, too large, or of another aspect ratio (`mask_mismatch`).
 */
export async function readMask(path: string, limit: number, { width, height }: Image, grow: number): Promise<Uint8Array> {
  const mask = await decode(path, limit)
  const off = Math.min(Math.abs(mask.width - (width * mask.height) / height), Math.abs(mask.height - (height * mask.width) / width))
  if (off > 1)
    throw new InputError('mask_mismatch', `a mask of ${mask.width} by ${mask.height} pixels for a picture of ${width} by ${height}`, {
      source: '/mask_url',
      found: { width: mask.width, height: mask.height },
      limit: { width, height },
    })
  const marked = await resizePlane(marks(mask), mask.width, mask.height, width, height)
  return grown(
    marked.map((value) => (value >= MARKED ? 1 : 0)),
    width,
    grow,
  )
}

/** How much of each pixel is marked, 0 to 255. */
function marks({ pixels }: Image): Uint8Array {
  const plane = new Uint8Array(pixels.length / 4)
  let transparent = false
  for (let i = 0; i < plane.length; i++) {
    plane[i] = 255 - (pixels[4 * i + 3] as number)
    transparent ||= plane[i] !== 0
  }
  if (transparent) return plane
  return plane.map((_, i) =>
    Math.round(0.299 * (pixels[4 * i] as number) + 0.587 * (pixels[4 * i + 1] as number) + 0.114 * (pixels[4 * i + 2] as number)),
  )
}

/** Marks everything within `radius` pixels of what is marked as well. */
function grown(mask: Uint8Array, width: number, radius: number): Uint8Array {
  if (radius === 0) return mask
  // How far what is marked reaches to both sides, by the rows between.
  const reaches = Array.from({ length: radius + 1 }, (_, rows) => Math.floor(Math.sqrt(radius ** 2 - rows ** 2)))
  const rows = rowsToMarked(mask, width, radius + 1)
  const wider = new Uint8Array(mask.length)
  for (let start = 0; start < mask.length; start += width) {
    const turns = new Int32Array(width + 1)
    for (let x = 0; x < width; x++) {
      const reach = reaches[rows[start + x] as number]
      if (reach === undefined) continue
      turns[Math.max(x - reach, 0)]!++
      turns[Math.min(x + reach + 1, width)]!--
    }
    for (let x = 0, reached = 0; x < width; x++) wider[start + x] = (reached += turns[x] as number) > 0 ? 1 : 0
  }
  return wider
}

/** By pixel: how many rows above or below it the next marked pixel of its column is, `most` at most. */
function rowsToMarked(mask: Uint8Array, width: number, most: number): Uint16Array {
  const rows = new Uint16Array(mask.length)
  for (let i = 0; i < rows.length; i++) rows[i] = mask[i] ? 0 : Math.min((rows[i - width] ?? most) + 1, most)
  for (let i = rows.length - 1 - width; i >= 0; i--) rows[i] = Math.min(rows[i] as number, (rows[i + width] as number) + 1)
  return rows
}
