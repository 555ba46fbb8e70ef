/**
 * Uploads: files that a client sends as sources of operations (`docs/media.md`, "Uploads"). A body is streamed into the files backend, and its
 * content decides what it is.
 */
import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import type { FileFacts } from '../backends/files/files.ts'
import { Failure, overLimit } from '../domain/errors.ts'
import { contentTypeOf, PREFIX_BYTES, type MediaInfo } from '../domain/media-info.ts'
import { OPERATIONS, sourceLimits, takes } from '../domain/media-operations.ts'
import type { SubmitContext } from './submit.ts'
import { ownerOf, readUploads, uploadId } from './upload-ids.ts'

export type UploadLimits = {
  /** Of one upload. */
  bytes: number
  /** Uploads that a tenant may have at a time, and their bytes. */
  perTenant: { count: number; bytes: number }
  /** Uploads of a tenant that may arrive at once in one process. */
  arriving: number
}

const MIB = 1024 * 1024
export const LIMITS: UploadLimits = { bytes: 100 * MIB, perTenant: { count: 1_000, bytes: 2048 * MIB }, arriving: 4 }

/** How long a signed address takes uploads. */
const LINK_MS = 15 * 60_000
/** Before the owner in the id of an upload address. No file has an id like it. */
const LINK = 'uploads-of-'

export type Uploads = {
  /**
   * Stores a body of `contentLength` bytes (the header) for the owner and describes it. Throws the failure of one that is no media, above a
   * limit, or slower than the minimum rate; it leaves no file then.
   */
  receive(owner: string, contentLength: string | undefined, body: Readable): Promise<Record<string, unknown>>
  /** The signed address to which anybody may send files for the owner, by PUT, and when it expires. */
  link(owner: string): { url: string; expiresAt: number }
  /** The owner of such an address, by the id in it; null for the id of a file. */
  linkOwner(id: string): string | null
  /** Removes an upload. Throws `not_found` for one that the owner does not have. */
  remove(owner: string, id: string): Promise<void>
  limits: UploadLimits
}

/** The name of a tenant in ids of uploads. */
export function uploadOwner(tenant: string): string {
  return createHash('sha256').update(tenant).digest('hex').slice(0, 24)
}

/** Opens the uploads of this process. `partsOf` reads a body, and throws when it is too slow. Uploads are kept as long as results. */
export function openUploads(context: SubmitContext, partsOf: (body: Readable) => Parts, given: Partial<UploadLimits> = {}): Uploads {
  const limits = { ...LIMITS, ...given }
  const { files, engines, clock, log } = context
  /** Uploads that arrive now, of owners with any. */
  const arriving = new Map<string, { count: number; bytes: number }>()
  const arrivingOf = (owner: string) => arriving.get(owner) ?? { count: 0, bytes: 0 }

  function change(owner: string, count: number, bytes: number): void {
    const now = arrivingOf(owner)
    if (now.count + count === 0) arriving.delete(owner)
    else arriving.set(owner, { count: now.count + count, bytes: now.bytes + bytes })
  }

  /**
   * Counts what the owner has by the ids in the files backend, which every replica sees; an upload that arrives elsewhere at this moment
   * is not among them.
   */
  async function checkSpace(owner: string): Promise<void> {
    const { count, bytes, firstExpiresAt } = await readUploads(files, owner, clock(), limits.perTenant.count)
    const { perTenant } = limits
    const isFull = count + arrivingOf(owner).count > perTenant.count || bytes + arrivingOf(owner).bytes > perTenant.bytes
    if (!isFull) return
    const retryAfterSeconds = Math.max(1, Math.ceil(((firstExpiresAt ?? clock()) - clock()) / 1000))
    throw overLimit('stored_uploads', { retryAfterSeconds })
  }

  async function store(owner: string, bytes: number, body: Readable): Promise<Record<string, unknown>> {
    const parts = partsOf(body)
    const prefix = await firstBytes(parts)
    const contentType = contentTypeOf(prefix)
    if (contentType === null || !OPERATIONS.some((operation) => takes(operation, 'media', contentType))) {
      throw new Failure('unsupported_media_type', { message: 'This file is not an image, a video or an audio file of a known format.' })
    }
    const expiresAt = Math.floor((clock() + context.resultMs) / 1000) * 1000
    const id = uploadId(owner, { expiresAt, bytes }, context.uuid())
    const file = await files.put(id, joined(prefix, parts), { contentType, expiresAt })
    try {
      const { width, height, durationMs, contentType: found } = await checkedInfo(file, bytes)
      return {
        id,
        object: 'upload',
        media_url: context.link({ file: id, expiresAt }),
        content_type: found,
        bytes,
        width,
        height,
        duration_ms: durationMs,
        expires_at: new Date(expiresAt).toISOString(),
      }
    } catch (error) {
      await files
        .remove(id)
        .catch((err: unknown) => log.warn({ event: 'upload_not_removed', err, file: id }, 'upload not removed, it expires later'))
      throw error
    }
  }

  /** What a stored file is. Throws the failure of one that no operation would take, by what its header says. */
  async function checkedInfo(file: FileFacts, bytes: number): Promise<MediaInfo> {
    if (file.size !== bytes) throw new Failure('invalid_request', { message: 'The upload ended early.' })
    const info = await context.fileInfo(file)
    if (!info) throw new Failure('unsupported_media_type', { message: 'This file is damaged.' })
    const pixels = (info.width ?? 0) * (info.height ?? 0)
    const kinds = [...OPERATIONS, 'video'].filter((kind) => takes(kind, 'media', info.contentType))
    const pixelsMax = Math.max(0, ...kinds.map(pixelsOf))
    if (pixelsMax > 0 && pixels > pixelsMax) {
      throw new Failure('payload_too_large', {
        message: `This file has ${info.width} × ${info.height} pixels. Operations accept at most ${pixelsMax / 1_000_000} megapixels.`,
      })
    }
    return info
  }

  /** How many pixels a source of a kind or operation may have; 0 where none is taken. */
  function pixelsOf(kind: string): number {
    const offer = engines.offer(kind)
    return offer && (kind !== 'video' || offer.options.includes('image_url')) ? sourceLimits(kind, offer.route.max).pixels : 0
  }

  return {
    limits,
    link(owner) {
      const expiresAt = Math.floor((clock() + LINK_MS) / 1000) * 1000
      return { url: context.link({ file: `${LINK}${owner}`, expiresAt }), expiresAt }
    },
    linkOwner: (id) => (id.startsWith(LINK) ? id.slice(LINK.length) : null),
    async receive(owner, contentLength, body) {
      const bytes = announcedBytes(contentLength, limits.bytes)
      if (arrivingOf(owner).count >= limits.arriving)
        throw overLimit('arriving_uploads', {
          message: `${limits.arriving} uploads are arriving already. Try again when one has ended.`,
          retryAfterSeconds: 5,
        })
      change(owner, 1, bytes)
      try {
        await checkSpace(owner)
        return await store(owner, bytes, body)
      } finally {
        change(owner, -1, -bytes)
      }
    },
    async remove(owner, id) {
      if (ownerOf(id) !== owner || !(await files.stat(id))) throw new Failure('not_found')
      await files.remove(id)
    },
  }
}

/** The length of the body, which must be announced: whole bytes, above zero, at most `most`. */
function announcedBytes(contentLength: string | undefined, most: number): number {
  const bytes = Number(contentLength)
  if (contentLength === undefined || bytes === 0)
    throw new Failure('invalid_request', { message: 'Send the file as the body, with its Content-Length.' })
  if (bytes > most) throw new Failure('payload_too_large', { message: `An upload has at most ${Math.floor(most / MIB)} MiB.` })
  return bytes
}

type Parts = AsyncGenerator<Buffer, void>

/** Up to `PREFIX_BYTES`, or a little more: whole parts. */
async function firstBytes(parts: Parts): Promise<Buffer> {
  const first: Buffer[] = []
  for (let length = 0; length < PREFIX_BYTES;) {
    const { value, done } = await parts.next()
    if (done) break
    first.push(value)
    length += value.length
  }
  return Buffer.concat(first)
}

async function* joined(prefix: Buffer, parts: Parts): AsyncGenerator<Buffer> {
  yield prefix
  yield* parts
}
