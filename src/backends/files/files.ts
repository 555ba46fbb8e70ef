/**
 * BACKEND: where results lie. Whole files under ids that are written once: a run that is made again writes under an id of its own (`taskId-epoch`), so writing an id
 * twice means the same bytes. What cannot be known throws `Unavailable`.
 */
import type { Readable } from 'node:stream'

export type FileFacts = {
  id: string
  /** Bytes. */
  size: number
  contentType: string
  /** Epoch milliseconds. The file may be swept from then on. */
  expiresAt: number
  /** Names these very bytes; the same whenever they are written again. Without quotes. */
  etag: string
}

/** Bytes `start` to `end`, both included, as in HTTP: 0 ≤ start ≤ end < size. */
export type ByteRange = { start: number; end: number }

export type FileBody = Uint8Array | AsyncIterable<Uint8Array>

export type Files = {
  /**
   * Writes a file whole: it is there when this resolves, and after a crash it is there whole or not at all. An id that is there already is replaced.
   * Throws a RangeError for what is no id, whatever `body` throws, and `Unavailable`, also when there is no room; then an earlier file is untouched.
   */
  put(id: string, body: FileBody, facts: { contentType: string; expiresAt: number }): Promise<FileFacts>
  /** What is known of a file, or null. */
  stat(id: string): Promise<FileFacts | null>
  /**
   * A file, or a range of it, as a stream that must be read or destroyed; null when it is not there. Once given, the stream stays whole while the file is removed.
   * Throws a RangeError for a range outside the file.
   */
  get(id: string, range?: ByteRange): Promise<(FileFacts & { stream: Readable }) | null>
  /** Removes a file; one that is not there is removed already. */
  remove(id: string): Promise<void>
  /** Removes up to `limit` files whose time was up at `now`, and what crashed writers left behind. Returns how many files. */
  sweep(now: number, limit: number): Promise<number>
  /** Ids in order, those after `after`, at most `limit`: for finding files that no task knows. */
  list(after: string, limit: number): Promise<string[]>
  close(): Promise<void>
}

const ID = /^[a-z0-9][a-z0-9-]{0,99}$/

/** True for what can name a file: lower-case letters, digits and hyphens. Nothing that means anything to a file system or a URL. */
export function isFileId(id: string): boolean {
  return ID.test(id)
}

/** What S3 requests are signed with. */
export type Credentials = { accessKeyId: string; secretAccessKey: string; sessionToken?: string }

/** What a place may need beside its own address. */
export type Surroundings = {
  /** `STORE_URL`: `gridfs:` lies in the same MongoDB. */
  storeUrl: string
  /** What `s3:` signs with when its address names no files for that: `AWS_ACCESS_KEY_ID` and its companions. */
  credentials?: Credentials | undefined
}

/**
 * Opens the place named by `url`: `disk:<folder>`, `gridfs:` (the MongoDB of `storeUrl`) or `s3://<bucket>[/<prefix>]?…` (see s3/address.ts). Throws `Unavailable` when it
 * cannot be reached or written now, and an Error whose sentence tells the operator what to do if trying again would not help: wrong credentials, a missing bucket.
 */
export async function openFiles(url: string, { storeUrl, credentials }: Surroundings = { storeUrl: '' }): Promise<Files> {
  if (url.startsWith('disk:')) {
    const { openDisk } = await import('./disk.ts')
    return openDisk(url.slice('disk:'.length))
  }
  if (url.startsWith('s3:')) {
    const { openS3 } = await import('./s3/s3.ts')
    return openS3(url, credentials)
  }
  if (url === 'gridfs:') {
    const { openGridfs } = await import('./gridfs/gridfs.ts')
    return openGridfs(storeUrl)
  }
  throw new Error(`FILES_URL has the unknown scheme ${url.split(':')[0]}: it may be disk:<folder>, gridfs: or s3://<bucket>.`)
}
