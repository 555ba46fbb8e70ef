/**
 * BACKEND: storage of result files. Files are written whole under ids that are used once: a repeated run writes under a new id
 * (`taskId-epoch`), so writing an id twice means the same bytes. An unknown outcome throws `Unavailable`.
 */
import type { Readable } from 'node:stream'

export type FileFacts = {
  id: string
  /** Bytes. */
  size: number
  contentType: string
  /** Epoch milliseconds after which the sweep may remove the file. */
  expiresAt: number
  /** Entity tag of the bytes; equal bytes have equal tags. Without quotes. */
  etag: string
}

/** Bytes `start` to `end`, both included, as in HTTP: 0 ≤ start ≤ end < size. */
export type ByteRange = { start: number; end: number }

export type FileBody = Uint8Array | AsyncIterable<Uint8Array>

export type Files = {
  /**
   * Writes a file atomically: it is durable when this resolves, and after a crash it exists whole or not at all. An existing id is replaced.
   * Throws a RangeError for an invalid id, the error of `body`, and `Unavailable`, also when space runs out; then an earlier file is untouched.
   */
  put(id: string, body: FileBody, facts: { contentType: string; expiresAt: number }): Promise<FileFacts>
  /** Metadata of a file, or null. */
  stat(id: string): Promise<FileFacts | null>
  /**
   * A file, or a range of it, as a stream that must be read or destroyed; null if there is none. An open stream stays complete while the file is removed.
   * Throws a RangeError for a range outside the file.
   */
  get(id: string, range?: ByteRange): Promise<(FileFacts & { stream: Readable }) | null>
  /** Removes a file; a missing one is no error. */
  remove(id: string): Promise<void>
  /** Removes up to `limit` files that expired by `now`, and leftovers of crashed writers. Returns the number of files. */
  sweep(now: number, limit: number): Promise<number>
  /** Ids in order, after `after`, at most `limit`: to find files without a task. */
  list(after: string, limit: number): Promise<string[]>
  close(): Promise<void>
}

const ID = /^[a-z0-9][a-z0-9-]{0,99}$/

/** True for a valid id: lower-case letters, digits and hyphens, which are neutral in file systems and URLs. */
export function isFileId(id: string): boolean {
  return ID.test(id)
}

/** Credentials that sign S3 requests. */
export type Credentials = { accessKeyId: string; secretAccessKey: string; sessionToken?: string }

/** Settings that a files backend may need besides its address. */
export type FilesOptions = {
  /** `STORE_URL`: `gridfs:` uses the same MongoDB. */
  storeUrl: string
  /** Credentials of `s3:` when its address names no files for them: `AWS_ACCESS_KEY_ID` and the like. */
  credentials?: Credentials | undefined
  /** Neither a folder nor an index is created. Only verbs that read may be called. */
  readOnly?: boolean
}

/**
 * Opens the backend of `url`: `disk:<folder>`, `gridfs:` (the MongoDB of `storeUrl`) or `s3://<bucket>[/<prefix>]?…` (see s3/s3-url.ts).
 * Throws `Unavailable` when it cannot be reached or written at present, and an Error with advice for the operator when a retry would not
 * help: wrong credentials, a missing bucket.
 */
export async function openFiles(url: string, { storeUrl, credentials, readOnly }: FilesOptions = { storeUrl: '' }): Promise<Files> {
  if (url.startsWith('disk:')) {
    const { openDisk } = await import('./disk.ts')
    return openDisk(url.slice('disk:'.length), readOnly)
  }
  if (url.startsWith('s3:')) {
    const { openS3 } = await import('./s3/s3.ts')
    return openS3(url, credentials)
  }
  if (url === 'gridfs:') {
    const { openGridfs } = await import('./gridfs/gridfs.ts')
    return openGridfs(storeUrl, readOnly)
  }
  throw new Error(`FILES_URL has the unknown scheme ${url.split(':')[0]}: it must be disk:<folder>, gridfs: or s3://<bucket>.`)
}
