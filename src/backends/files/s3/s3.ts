/**
 * Files backend in a bucket of an S3-compatible server, for many processes. A file is the object `files/<id>` with its content type, and
 * its expiry as metadata. S3 publishes an object atomically, and a download that has begun reads one version, even if the object is removed
 * or replaced meanwhile. The entity tag is S3's own: it depends on the bytes alone, except in buckets encrypted with SSE-KMS, where writing
 * the same bytes again changes it. Needs a general purpose bucket (directory buckets do not list in order).
 */
import { Readable } from 'node:stream'
import { Unavailable } from '../../../domain/errors.ts'
import { isFileId, type ByteRange, type Credentials, type FileFacts, type Files } from '../files.ts'
import { readAddress, type S3Address } from './s3-url.ts'
import { credentialsOf, makeClient, errorOf, type Answered, type Refused, type S3Client, type S3Request } from './s3-client.ts'
import { expiryKey, listKeys, sweepDue, sweepUploads } from './expiry-sweep.ts'
import { bare, upload } from './multipart-upload.ts'

const EXPIRES = 'x-amz-meta-expires-at'
/** A file that expires this soon may be swept while it is being written. */
const NEAR_MS = 3600 * 1000

/** Opens the bucket after checking that it can be listed and written. Throws like `openFiles`. */
export async function openS3(url: string, given: Credentials | undefined): Promise<Files> {
  const address = readAddress(url)
  const credentials = credentialsOf(address, given)
  await credentials()
  const s3 = makeClient(address, credentials)
  try {
    await tryOut(s3, address)
  } catch (error) {
    await s3.close()
    throw error
  }
  return filesIn(s3, address)
}

function filesIn(s3: S3Client, address: S3Address): Files {
  // Multipart uploads in progress in this process.
  const under = new Set<string>()

  async function stat(id: string): Promise<FileFacts | null> {
    if (!isFileId(id)) return null
    const answer = await s3.call({ method: 'HEAD', key: `files/${id}` })
    if (answer.outcome === 'answered') return factsOf(id, answer)
    if (answer.status !== 404) throw new Unavailable('files', errorOf({ method: 'HEAD' }, answer))
    // HEAD does not tell whether the file or the bucket is missing.
    const file = await get(id)
    file?.stream.destroy()
    return file && { id, size: file.size, contentType: file.contentType, expiresAt: file.expiresAt, etag: file.etag }
  }

  async function get(id: string, range?: ByteRange): Promise<(FileFacts & { stream: Readable }) | null> {
    if (!isFileId(id)) return null
    // S3 answers an invalid range with the whole object.
    const readable = !range || (range.start >= 0 && range.start <= range.end)
    const request: S3Request = {
      method: 'GET',
      key: `files/${id}`,
      headers: range && readable ? { range: `bytes=${range.start}-${range.end}` } : {},
      answer: 'stream',
    }
    const answer = await s3.call(request)
    if (answer.outcome === 'refused') {
      if (answer.status === 404 && answer.code !== 'NoSuchBucket') return null
      if (answer.status === 416) throw new RangeError('the range lies outside the file')
      throw new Unavailable('files', errorOf(request, answer))
    }
    const facts = factsOf(id, answer)
    const stream = guarded(answer.body ?? Readable.from([]))
    if (facts && readable && (!range || (answer.status === 206 && range.end < facts.size))) return { ...facts, stream }
    stream.destroy()
    if (!facts) return null
    if (readable && range && range.end < facts.size)
      throw new Unavailable('files', new Error('S3 answered a range request with the whole object'))
    throw new RangeError('the range lies outside the file')
  }

  async function remove(id: string): Promise<void> {
    // The expiry entry stays; the sweep drops it later.
    if (isFileId(id)) await s3.demand({ method: 'DELETE', key: `files/${id}` })
  }

  return {
    async put(id, body, { contentType, expiresAt }) {
      if (!isFileId(id)) throw new RangeError('not the id of a file')
      const noteExpiry = async () => void (await s3.demand({ method: 'PUT', key: expiryKey(id, expiresAt), body: Buffer.alloc(0) }))
      const headers = { 'content-type': contentType, [EXPIRES]: String(expiresAt) }
      const { size, etag } = await upload(s3, { key: `files/${id}`, body, headers, beforeCommit: noteExpiry, under })
      // A sweep between the two writes may have dropped the entry, which had no file yet.
      if (expiresAt < Date.now() + NEAR_MS) await noteExpiry()
      return { id, size, contentType, expiresAt, etag }
    },

    stat,
    get,
    remove,

    async sweep(now, limit) {
      const removed = await sweepDue({ s3, address, stat, remove }, now, limit)
      await sweepUploads(s3, address, now, under)
      return removed
    },

    async list(after, limit) {
      const ids: string[] = []
      for (let more = true, last = after; more && ids.length < limit;) {
        const page = await listKeys(s3, address, 'files/', last, limit - ids.length)
        ids.push(...page.names.filter(isFileId))
        last = page.names.at(-1) ?? last
        more = page.more
      }
      return ids
    },

    close: s3.close,
  }
}

/** The metadata in the headers of an answer, or null if the object is not ours. */
function factsOf(id: string, { headers }: Answered): FileFacts | null {
  const expiresAt = Number(headers[EXPIRES] ?? Number.NaN)
  if (Number.isNaN(expiresAt)) return null
  const size = Number(headers['content-range']?.split('/')[1] ?? headers['content-length'])
  return { id, size, contentType: headers['content-type'] ?? 'application/octet-stream', expiresAt, etag: bare(headers['etag']) }
}

/** Wraps the body of an answer: errors become `Unavailable`, and destroying the stream releases the connection. */
function guarded(body: Readable): Readable {
  const chunks = body[Symbol.asyncIterator]() as AsyncIterator<Buffer>
  body.on('error', () => undefined)
  return new Readable({
    read() {
      chunks.next().then(
        ({ done, value }) => this.push(done ? null : value),
        (error: unknown) => this.destroy(new Unavailable('files', error)),
      )
    },
    destroy(error, done) {
      body.destroy()
      done(error)
    },
  })
}

/** Lists and writes once. Throws an Error with advice for the operator when the refusal is permanent. */
async function tryOut(s3: S3Client, address: S3Address): Promise<void> {
  const listed = await s3.call({
    method: 'GET',
    query: { 'list-type': '2', 'max-keys': '1', prefix: `${address.prefix}files/` },
    answer: 'xml',
  })
  if (listed.outcome === 'refused') throw new Error(advice(address, listed))
  if (!listed.text.includes('<ListBucketResult'))
    throw new Error(
      `FILES_URL names ${new URL(address.bucketUrl).origin}, which does not answer as an S3 server does: correct the endpoint.`,
    )
  const written = await s3.call({ method: 'PUT', key: 'write-check', body: Buffer.alloc(0) })
  if (written.outcome === 'refused') throw new Error(advice(address, written))
}

/** The last one is the code of versitygw. */
const BAD_KEYS = ['InvalidAccessKeyId', 'SignatureDoesNotMatch', 'InvalidToken', 'ExpiredToken', 'XAdminUserNotFound']
const BAD_REGIONS = ['PermanentRedirect', 'TemporaryRedirect', 'AuthorizationHeaderMalformed', 'IllegalLocationConstraintException']
const RIGHTS = 's3:ListBucket, s3:ListBucketMultipartUploads, s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload'

function advice({ bucket, region, bucketUrl }: S3Address, { status, code, message, text }: Refused): string {
  const server = new URL(bucketUrl).host
  const reason = `${status}${code && ` ${code}`}${message && `: ${message}`}`
  if (code === 'NoSuchBucket') return `FILES_URL names the bucket ${bucket}, which ${server} does not have: create it, or correct the name.`
  if (BAD_KEYS.includes(code))
    return `FILES_URL: ${server} does not accept the access key (${code}): correct the access key id and the secret access key.`
  if (code === 'RequestTimeTooSkewed') return `FILES_URL: the clock of this machine is too far from that of ${server}: set it right.`
  if (BAD_REGIONS.includes(code)) {
    const right = /<Region>([a-z0-9-]+)<\/Region>/.exec(text)?.[1]
    return `FILES_URL: the bucket ${bucket} is not in the region ${region}: set region=${right ?? 'to the one where it is'}.`
  }
  if (status === 403) return `FILES_URL: the access key may not list or write the bucket ${bucket} (${reason}): it needs ${RIGHTS}.`
  return `FILES_URL: ${server} refuses the request (${reason}): is it an S3 server, and are endpoint, region and pathStyle right?`
}
