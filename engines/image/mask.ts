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
    height,
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
function grown(mask: Uint8Array, width: number, height: number, radius: number): Uint8Array {
  if (radius === 0) return mask
  const wider = new Uint8Array(mask.length)
  for (let y = 0; y < height; y++) {
    const row = mask.subarray(y * width, (y + 1) * width)
    for (let start = row.indexOf(1), end; start >= 0; start = row.indexOf(1, end)) {
      end = row.indexOf(0, start)
      if (end < 0) end = width
      for (let to = Math.max(y - radius, 0); to <= Math.min(y + radius, height - 1); to++) {
        const reach = Math.floor(Math.sqrt(radius ** 2 - (to - y) ** 2))
        wider.fill(1, to * width + Math.max(start - reach, 0), to * width + Math.min(end + reach, width))
      }
    }
  }
  return wider
}
