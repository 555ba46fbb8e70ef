/** Pictures in and out of memory, by sharp. For child processes only: decoding runs native code on a stranger's bytes. */
import { access } from 'node:fs/promises'
import sharp from 'sharp'
import type { TaskErrorDetails } from '../../src/domain/task.ts'
import { InputError } from './operation-result.ts'

/** Straight (not premultiplied) sRGB, 8 bits a channel, RGBA row by row. */
export type Image = {
  width: number
  height: number
  pixels: Uint8Array
  /** Whether no pixel is transparent. */
  opaque: boolean
}

/** The loaders of libvips that may see an input. All others, such as those of SVG, PDF, and ImageMagick's formats, are blocked. */
const LOADERS = ['Jpeg', 'Png', 'Webp', 'Heif', 'Nsgif', 'Tiff'].flatMap((name) => [
  `VipsForeignLoad${name}File`,
  `VipsForeignLoad${name}Buffer`,
])
sharp.block({ operation: ['VipsForeignLoad'] })
sharp.unblock({ operation: LOADERS })
sharp.cache(false)

/** The longest side that a file of a format can have. */
const LONGEST_SIDE: Record<string, number> = { webp: 16_383, jpeg: 65_535 }

/**
 * Decodes the picture of a file: upright (EXIF orientation), in sRGB (ICC profiles, CMYK, grey and 16 bits are converted). The format is
 * found out from the content. Throws an InputError when it is no picture in PNG, JPEG, WebP, AVIF, GIF or TIFF, broken or cut off (`unsupported_input`), an
 * animation or a file of several pages (`several_pictures`), or has more pixels than `limit` (`input_too_large`); its header alone decides that.
 */
export async function decode(path: string, limit: number): Promise<Image> {
  await access(path)
  const { width, height, hasAlpha, pages = 1 } = await sharp(path, { limitInputPixels: false }).metadata().catch(unreadable)
  if (pages > 1) throw new InputError('several_pictures', `${pages} pictures`, { found: { pictures: pages }, limit: { pictures: 1 } })
  if (width * height > limit)
    throw new InputError('input_too_large', `${width} by ${height} pixels, of at most ${limit}`, pixelsOf(width, height, limit))
  const { data, info } = await sharp(path, { limitInputPixels: limit, failOn: 'error', autoOrient: true })
    .toColourspace('srgb')
    .ensureAlpha()
    .raw({ depth: 'uchar' })
    .toBuffer({ resolveWithObject: true })
    .catch(unreadable)
  return {
    width: info.width,
    height: info.height,
    pixels: data,
    opaque: !hasAlpha || data.every((value, i) => i % 4 !== 3 || value === 255),
  }
}

function unreadable(error: unknown): never {
  throw new InputError('unsupported_input', error instanceof Error ? error.message : String(error))
}

const pixelsOf = (width: number, height: number, limit: number): TaskErrorDetails => ({
  found: { width, height },
  limit: { megapixels: limit / 1e6 },
})

/** Throws an InputError (`result_too_large`) when a result of this size has more pixels than `limit`, or sides that the format cannot have. */
export function checkSize(width: number, height: number, format: string, limit: number): void {
  const cause = `a result of ${width} by ${height} pixels in ${format}`
  if (width * height > limit) throw new InputError('result_too_large', cause, pixelsOf(width, height, limit))
  const longest = LONGEST_SIDE[format] ?? Infinity
  if (Math.max(width, height) > longest)
    throw new InputError('result_too_large', cause, { found: { width, height }, limit: { width: longest, height: longest } })
}

/** Writes a picture as `png`, `webp` or `jpeg`. JPEG knows no transparency: it drops the alpha channel, as the others do where the picture is opaque. */
export async function encode({ width, height, pixels, opaque }: Image, format: string, path: string): Promise<void> {
  const raw = sharp(pixels, { raw: { width, height, channels: 4 } })
  const picture = opaque || format === 'jpeg' ? raw.removeAlpha() : raw
  if (format === 'jpeg') await picture.jpeg({ quality: 92, chromaSubsampling: '4:4:4' }).toFile(path)
  else if (format === 'webp') await picture.webp({ quality: 92 }).toFile(path)
  else await picture.png().toFile(path)
}

/** A picture in another size, by a Lanczos filter. Transparency is weighed in. */
export async function resize({ width, height, pixels, opaque }: Image, toWidth: number, toHeight: number): Promise<Image> {
  const raw = sharp(pixels, { raw: { width, height, channels: 4 } })
  const picture = opaque ? raw.removeAlpha() : raw
  return {
    width: toWidth,
    height: toHeight,
    pixels: await picture.resize(toWidth, toHeight, { fit: 'fill', kernel: 'lanczos3' }).ensureAlpha().raw().toBuffer(),
    opaque,
  }
}

/** One channel in another size. */
export async function resizePlane(
  plane: Uint8Array,
  width: number,
  height: number,
  toWidth: number,
  toHeight: number,
): Promise<Uint8Array> {
  if (width === toWidth && height === toHeight) return plane
  const raw = sharp(plane, { raw: { width, height, channels: 1 } })
  return raw.resize(toWidth, toHeight, { fit: 'fill', kernel: 'linear' }).extractChannel(0).raw().toBuffer()
}

/** A picture on a colour (`#rrggbb`), grey by default. An opaque one is returned as it is. */
export async function flatten({ width, height, pixels, opaque }: Image, background = '#808080'): Promise<Image> {
  if (opaque) return { width, height, pixels, opaque }
  const data = await sharp(pixels, { raw: { width, height, channels: 4 } })
    .flatten({ background })
    .ensureAlpha()
    .raw()
    .toBuffer()
  return { width, height, pixels: data, opaque: true }
}

/** Of 255. What is fainter does not count as part of the subject when a picture is cropped to it. */
const FAINT = 13

/** The smallest part of a picture that has everything visible; the whole picture when nothing is. */
export async function crop({ width, height, pixels, opaque }: Image): Promise<Image> {
  let [left, right, top, bottom] = [width, -1, height, -1]
  for (let y = 0, i = 3; y < height; y++) {
    for (let x = 0; x < width; x++, i += 4) {
      if ((pixels[i] ?? 0) < FAINT) continue
      left = Math.min(left, x)
      right = Math.max(right, x)
      top = Math.min(top, y)
      bottom = y
    }
  }
  if (right < 0) return { width, height, pixels, opaque }
  const part = { left, top, width: right - left + 1, height: bottom - top + 1 }
  const data = await sharp(pixels, { raw: { width, height, channels: 4 } })
    .extract(part)
    .raw()
    .toBuffer()
  return { width: part.width, height: part.height, pixels: data, opaque }
}
