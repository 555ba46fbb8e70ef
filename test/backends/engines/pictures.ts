/** Pictures for the tests of the image operations, by sharp where it is installed. */
import { readFile } from 'node:fs/promises'
import { crc32 } from 'node:zlib'
import type { Sharp, SharpOptions } from 'sharp'

type SharpModule = (input?: string | Uint8Array, options?: SharpOptions) => Sharp

/** sharp, or null where it is not installed. */
export const sharp: SharpModule | null = await import('sharp').then((module) => module.default as SharpModule, () => null)

export type Rgba = readonly [number, number, number, number]
export type Raw = { width: number; height: number; pixels: Uint8Array }

/** A picture of a colour for each pixel. */
export function paint(width: number, height: number, colour: (x: number, y: number) => readonly number[]): Raw {
  const pixels = new Uint8Array(width * height * 4)
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) pixels.set([...colour(x, y), 255].slice(0, 4), 4 * (y * width + x))
  return { width, height, pixels }
}

/** Four quarters: red, green, blue, yellow. */
export const quarters = (width: number, height: number): Raw =>
  paint(width, height, (x, y) => (y < height / 2 ? (x < width / 2 ? [255, 0, 0] : [0, 255, 0]) : x < width / 2 ? [0, 0, 255] : [255, 255, 0]))

/** For sharp: a picture as it is, in RGBA. */
export function open({ width, height, pixels }: Raw): Sharp {
  if (!sharp) throw new Error('sharp is not installed')
  return sharp(pixels, { raw: { width, height, channels: 4 } })
}

/** What is really in a file. */
export async function decoded(path: string): Promise<Raw & { format: string; hasAlpha: boolean }> {
  if (!sharp) throw new Error('sharp is not installed')
  const bytes = await readFile(path)
  const { format, hasAlpha } = await sharp(bytes).metadata()
  const { data, info } = await sharp(bytes).toColourspace('srgb').ensureAlpha().raw().toBuffer({ resolveWithObject: true })
  return { width: info.width, height: info.height, pixels: data, format: format ?? '', hasAlpha: hasAlpha ?? false }
}

/** The pixels of a file. */
export async function decodedBytes(bytes: Uint8Array): Promise<Raw> {
  if (!sharp) throw new Error('sharp is not installed')
  const { data, info } = await sharp(bytes).ensureAlpha().raw().toBuffer({ resolveWithObject: true })
  return { width: info.width, height: info.height, pixels: data }
}

export function at({ width, pixels }: Raw, x: number, y: number): Rgba {
  const [r = 0, g = 0, b = 0, a = 0] = pixels.subarray(4 * (y * width + x))
  return [r, g, b, a]
}

/** The largest difference of a channel between two colours, or between the colours of two pictures of the same size. */
export function distance(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let most = a.length === b.length ? 0 : Infinity
  for (let i = 0; i < a.length; i++) most = Math.max(most, Math.abs((a[i] ?? 0) - (b[i] ?? 0)))
  return most
}

/** A PNG that declares a size and has next to no pixels of it. */
export function pngBomb(width: number, height: number): Buffer {
  const chunk = (type: string, data: Buffer): Buffer => {
    const body = Buffer.concat([Buffer.from(type), data])
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
    length.writeUInt32BE(data.length)
    sum.writeUInt32BE(crc32(body))
    return Buffer.concat([length, body, sum])
  }
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width)
  header.writeUInt32BE(height, 4)
  header.set([8, 6, 0, 0, 0], 8)
  return Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), chunk('IHDR', header), chunk('IDAT', Buffer.from('789c030000000001', 'hex')), chunk('IEND', Buffer.alloc(0))])
}
