/** Small versions of pictures, made by sharp where it is installed. None is stored: the browser keeps them. */
import type { FastifyBaseLogger } from 'fastify'
import type { Files } from '../../src/backends/files/files.ts'
import type { TaskResult } from '../../src/domain/task.ts'

/** The part of sharp that is used: the package is optional, so its types may not be there. */
type Picture = {
  rotate(): Picture
  resize(options: { width: number; height: number; fit: 'cover' }): Picture
  webp(options: { quality: number }): Picture
  toBuffer(): Promise<Buffer>
}
type Sharp = (bytes: Buffer, options: { limitInputPixels: number }) => Picture

/** Null where the package is missing. By a name of its own, so that tsc does not need it. */
const loadSharp = (name = 'sharp'): Promise<Sharp | null> =>
  import(name).then(
    ({ default: sharp }: { default: Sharp }) => sharp,
    () => null,
  )

const SIZE = { width: 400, height: 300, fit: 'cover' } as const
/** A larger one costs more to make than it saves. */
const LARGEST = { bytes: 16 * 1024 * 1024, pixels: 40_000_000 }

/** More than these would wait for long, and the file itself is there at once. */
const WAITING_MAX = 16

export type Thumbnails = {
  /**
   * A WebP of some kilobytes; null for what is no picture, is too large, or where sharp is missing. Also null while many others wait, and
   * for what is not `isWanted` any more when its turn comes.
   */
  of(result: TaskResult, isWanted: () => boolean): Promise<Buffer | null>
}

export function openThumbnails(files: Pick<Files, 'get'>, log: Pick<FastifyBaseLogger, 'warn'>): Thumbnails {
  /** One at a time: a gateway has other work. */
  let last: Promise<unknown> = Promise.resolve()
  let waiting = 0

  async function make(sharp: Sharp, { file }: TaskResult): Promise<Buffer | null> {
    const found = await files.get(file)
    if (!found) return null
    try {
      const bytes = Buffer.concat(await found.stream.toArray())
      return await sharp(bytes, { limitInputPixels: LARGEST.pixels }).rotate().resize(SIZE).webp({ quality: 72 }).toBuffer()
    } catch (err) {
      log.warn({ event: 'thumbnail_failed', err, file }, 'no thumbnail can be made')
      return null
    }
  }

  return {
    async of(result, isWanted) {
      const { contentType, bytes, width, height } = result
      const sharp = await loadSharp()
      if (!sharp || !contentType.startsWith('image/') || bytes > LARGEST.bytes || (width ?? 0) * (height ?? 0) > LARGEST.pixels) return null
      if (waiting >= WAITING_MAX) return null
      waiting++
      const mine = last.then(() => {
        waiting--
        return isWanted() ? make(sharp, result) : null
      })
      last = mine.catch(() => {})
      return mine
    },
  }
}
