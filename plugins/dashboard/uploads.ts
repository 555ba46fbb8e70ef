/**
 * `POST /uploads`: a file of the signed-in person as a source of operations. It is streamed into the files backend, and its content decides
 * what it is (`docs/dashboard.md`, "Uploads").
 */
import { createHash, randomUUID } from 'node:crypto'
import type { Readable } from 'node:stream'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { openCounts } from '../../src/concurrency/counts-by-name.ts'
import type { FileFacts } from '../../src/backends/files/files.ts'
import { Failure } from '../../src/domain/errors.ts'
import { contentTypeOf, PREFIX_BYTES, type MediaInfo } from '../../src/domain/media-info.ts'
import { OPERATIONS, takes } from '../../src/domain/media-operations.ts'
import { inactiveReason, planInactive } from '../../src/domain/subscription/subscription.ts'
import { infoOf } from '../../src/tasks/fetch-inputs.ts'
import { mediaPlans } from './paying-plan.ts'
import { readUploads, uploadId } from './upload-id.ts'

export type UploadLimits = {
  /** Of one upload. */
  bytes: number
  /** How long it is kept. */
  keptMs: number
  /** Uploads that a tenant may have at a time, and their bytes. */
  perTenant: { count: number; bytes: number }
  /** Uploads of a tenant that may arrive at once in one process. */
  arriving: number
}

const MIB = 1024 * 1024
export const LIMITS: UploadLimits = { bytes: 100 * MIB, keptMs: 12 * 3_600_000, perTenant: { count: 200, bytes: 2048 * MIB }, arriving: 4 }

async function uploads(app: FastifyInstance, given: Partial<UploadLimits>): Promise<void> {
  const limits = { ...LIMITS, ...given }
  const { tasks, clock } = app
  const arriving = openCounts()
  const arrivingBytes = openCounts()

  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', (_request, payload, done) => done(null, payload))

  app.post('/uploads', { config: { problem: true }, bodyLimit: limits.bytes }, async (request, reply) => {
    if (!request.session) throw new Failure('not_signed_in')
    const { tenant } = request.session
    await checkPlans(tenant)
    const bytes = announcedBytes(request, limits.bytes)
    if (arriving.of(tenant) >= limits.arriving)
      throw new Failure('concurrency_limit', {
        message: `${limits.arriving} uploads are arriving already. Try again when one has ended.`,
        retryAfterSeconds: 5,
      })
    arriving.add(tenant, 1)
    arrivingBytes.add(tenant, bytes)
    try {
      await checkSpace(tenant)
      return reply.code(201).send(await receive(tenant, bytes, request.body as Readable))
    } finally {
      arriving.add(tenant, -1)
      arrivingBytes.add(tenant, -bytes)
    }
  })

  async function checkPlans(tenant: string): Promise<void> {
    const reasons = (await mediaPlans(app.store, tenant)).map((plan) => inactiveReason(plan, clock()))
    const [first] = reasons
    if (first && !reasons.includes(null)) throw planInactive(first)
  }

  /**
   * Counts what the tenant has by the ids in the files backend, which every replica sees; an upload that arrives elsewhere at this moment
   * is not among them.
   */
  async function checkSpace(tenant: string): Promise<void> {
    const { count, bytes, firstExpiresAt } = await readUploads(app.files, groupOf(tenant), clock(), limits.perTenant.count)
    const isFull = count + arriving.of(tenant) > limits.perTenant.count || bytes + arrivingBytes.of(tenant) > limits.perTenant.bytes
    if (!isFull) return
    const retryAfterSeconds = Math.max(1, Math.ceil(((firstExpiresAt ?? clock()) - clock()) / 1000))
    throw new Failure('upload_limit', { retryAfterSeconds })
  }

  /** Stores a body and describes it. Throws the failure of one that is no media or above the limits, which leaves no file. */
  async function receive(tenant: string, bytes: number, body: Readable): Promise<Record<string, unknown>> {
    const parts = body.iterator({ destroyOnReturn: false })
    const prefix = await firstBytes(parts)
    const contentType = contentTypeOf(prefix)
    if (contentType === null || !OPERATIONS.some((operation) => takes(operation, 'media', contentType))) {
      throw new Failure('unsupported_media_type', { message: 'This file is not an image, a video or an audio file of a known format.' })
    }
    const expiresAt = Math.floor((clock() + limits.keptMs) / 1000) * 1000
    const id = uploadId(groupOf(tenant), { expiresAt, bytes }, randomUUID())
    const file = await app.files.put(id, joined(prefix, parts), { contentType, expiresAt })
    try {
      const info = await checkedInfo(file, bytes)
      const { width, height, durationMs } = info
      return {
        id,
        object: 'upload',
        media_url: tasks.link({ file: id, expiresAt }),
        content_type: info.contentType,
        bytes,
        width,
        height,
        duration_ms: durationMs,
        expires_at: new Date(expiresAt).toISOString(),
      }
    } catch (error) {
      await app.files
        .remove(id)
        .catch((err: unknown) => app.log.warn({ event: 'upload_not_removed', err, file: id }, 'upload not removed, it expires later'))
      throw error
    }
  }

  /** What a stored file is. Throws the failure of one that no operation would take, by what its header says. */
  async function checkedInfo(file: FileFacts, bytes: number): Promise<MediaInfo> {
    if (file.size !== bytes) throw new Failure('invalid_request', { message: 'The upload ended early.' })
    const info = await infoOf(app.files, file)
    if (!info) throw new Failure('unsupported_media_type', { message: 'This file is damaged.' })
    const pixels = (info.width ?? 0) * (info.height ?? 0)
    const pixelsMax = Math.max(
      0,
      ...OPERATIONS.filter((operation) => takes(operation, 'media', info.contentType)).map(
        (operation) => app.engines.offer(operation)?.route.max.pixels ?? 0,
      ),
    )
    if (pixelsMax > 0 && pixels > pixelsMax) {
      throw new Failure('payload_too_large', {
        message: `This file has ${info.width} × ${info.height} pixels. Operations take at most ${pixelsMax / 1_000_000} megapixels.`,
      })
    }
    return info
  }
}

/** The length of the body, which must be announced: whole bytes, above zero, at most `most`. */
function announcedBytes({ headers }: FastifyRequest, most: number): number {
  const bytes = Number(headers['content-length'])
  if (headers['content-length'] === undefined || bytes === 0)
    throw new Failure('invalid_request', { message: 'Send the file as the body, with its Content-Length.' })
  if (bytes > most) throw new Failure('payload_too_large', { message: `An upload has at most ${Math.floor(most / MIB)} MiB.` })
  return bytes
}

/** A name of the tenant for ids of files. */
function groupOf(tenant: string): string {
  return createHash('sha256').update(tenant).digest('hex').slice(0, 24)
}

type Parts = AsyncIterator<Buffer>

/** Up to `PREFIX_BYTES`, or a little more: whole parts. */
async function firstBytes(parts: Parts): Promise<Buffer> {
  const first: Buffer[] = []
  for (let length = 0; length < PREFIX_BYTES;) {
    const { value, done } = await nextOf(parts)
    if (done) break
    first.push(value)
    length += value.length
  }
  return Buffer.concat(first)
}

async function* joined(prefix: Buffer, parts: Parts): AsyncGenerator<Buffer> {
  yield prefix
  for (let part = await nextOf(parts); !part.done; part = await nextOf(parts)) yield part.value
}

/** A client that leaves is no error of ours. */
async function nextOf(parts: Parts): Promise<IteratorResult<Buffer>> {
  try {
    return await parts.next()
  } catch (cause) {
    throw new Failure('invalid_request', { message: 'The upload ended early.', cause })
  }
}

export default fp(uploads, {
  name: 'uploads',
  fastify: '5.x',
  encapsulate: true,
  decorators: { fastify: ['tasks', 'files', 'engines', 'store', 'clock'] },
})
