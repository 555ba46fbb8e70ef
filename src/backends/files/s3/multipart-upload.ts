/**
 * Upload of an object of any length to S3. A body shorter than a part is one PUT; a longer one is a multipart upload, which S3 turns into the object at its
 * completion. Both are atomic. At most one part is in memory.
 */
import { randomUUID } from 'node:crypto'
import { Unavailable } from '../../../domain/errors.ts'
import type { FileBody } from '../files.ts'
import { partsOf } from '../body-parts.ts'
import { element, errorOf, type S3Client, type S3Request } from './s3-client.ts'

/** S3 allows 10,000 parts of 5 MiB to 5 GiB: at most 80 GiB per file. */
const PART_BYTES = 8 * 1024 * 1024

/** Metadata that names the upload of an object. */
const UPLOAD = 'x-amz-meta-upload'

export type Upload = {
  key: string
  body: FileBody
  headers: Record<string, string>
  /** Called after the whole body is uploaded, just before the object appears. */
  beforeCommit(): Promise<void>
  /** Ids of multipart uploads in progress in this process. */
  under: Set<string>
}

/**
 * Writes the object. Returns its size in bytes and S3's entity tag. Throws the body's error, and `Unavailable`; then nothing has changed
 * unless the answer was lost.
 */
export async function upload(s3: S3Client, { key, body, headers, beforeCommit, under }: Upload): Promise<{ size: number; etag: string }> {
  const parts = partsOf(body, PART_BYTES)
  try {
    const first = await parts.next()
    if (!first.done && first.value.length === PART_BYTES)
      return await uploadParts(s3, { key, first: first.value, parts, headers, beforeCommit, under })
    const bytes = first.done ? Buffer.alloc(0) : first.value
    await beforeCommit()
    const { headers: facts } = await s3.demand({ method: 'PUT', key, headers, body: bytes })
    return { size: bytes.length, etag: bare(facts['etag']) }
  } finally {
    // Releases a body that was not read to its end.
    await parts.return(undefined)
  }
}

type Parts = Omit<Upload, 'body'> & { first: Buffer; parts: AsyncGenerator<Buffer> }

async function uploadParts(
  s3: S3Client,
  { key, first, parts, headers, beforeCommit, under }: Parts,
): Promise<{ size: number; etag: string }> {
  const name = randomUUID()
  const begun = await s3.demand({ method: 'POST', key, query: { uploads: '' }, headers: { ...headers, [UPLOAD]: name }, answer: 'xml' })
  const uploadId = element(begun.text, 'UploadId')
  under.add(uploadId)
  try {
    const tags: string[] = []
    let size = 0
    const send = async (part: Buffer) => {
      const { headers: facts } = await s3.demand({
        method: 'PUT',
        key,
        query: { partNumber: String(tags.length + 1), uploadId },
        body: part,
      })
      tags.push(bare(facts['etag']))
      size += part.length
    }
    await send(first)
    for await (const part of parts) await send(part)
    await beforeCommit()
    return { size, etag: await complete(s3, key, uploadId, tags, name) }
  } catch (error) {
    // S3 keeps and bills parts until they are aborted; the sweep aborts those that this misses.
    await s3.call({ method: 'DELETE', key, query: { uploadId } }, 1).catch(() => undefined)
    throw error
  } finally {
    under.delete(uploadId)
  }
}

async function complete(s3: S3Client, key: string, uploadId: string, tags: string[], name: string): Promise<string> {
  const list = tags.map((tag, at) => `<Part><PartNumber>${at + 1}</PartNumber><ETag>&quot;${tag}&quot;</ETag></Part>`).join('')
  const body = Buffer.from(`<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">${list}</CompleteMultipartUpload>`)
  const request: S3Request = {
    method: 'POST',
    key,
    query: { uploadId },
    headers: { 'content-type': 'application/xml' },
    body,
    answer: 'xml',
  }
  const answer = await s3.call(request)
  if (answer.outcome === 'answered') return bare(element(answer.text, 'ETag'))
  // An earlier attempt whose answer was lost may have completed the upload.
  const there = answer.code === 'NoSuchUpload' ? await s3.call({ method: 'HEAD', key }) : answer
  if (there.outcome === 'answered' && there.headers[UPLOAD] === name) return bare(there.headers['etag'])
  throw new Unavailable('files', errorOf(request, answer))
}

/** An entity tag without its quotes. */
export function bare(etag = ''): string {
  return etag.replaceAll(/^W\/|"/g, '')
}
