/**
 * Files backend in a local folder, for one process. A file is the bytes followed by a trailer with the metadata, so that one rename publishes both:
 * `<bytes><facts as JSON><length of the JSON, 4 bytes><TGF1>`.
 */
import { createHash, randomUUID } from 'node:crypto'
import { constants } from 'node:fs'
import { mkdir, open, readdir, rename, rm, stat, type FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { coalescing } from '../../concurrency/coalescing.ts'
import { Unavailable } from '../../domain/errors.ts'
import { isFileId, type FileBody, type FileFacts, type Files } from './files.ts'

const MAGIC = 'TGF1'
const TAIL = 8
const TRAILER_MAX = 4096
/** A body up to this size is written together with its trailer, and read so. */
const SMALL = 64 * 1024
const NONE = new Uint8Array()
/** A temporary file that has not grown for this long belongs to a dead writer. */
const ABANDONED_MS = 24 * 3600 * 1000

/** Opens the folder, and creates it if it is missing unless it is only read. */
export async function openDisk(folder: string, readOnly = false): Promise<Files> {
  const incoming = join(folder, '.incoming')
  if (!readOnly) await guard(() => mkdir(incoming, { recursive: true, mode: 0o700 }))
  // Expiry of each file: read from the folder at the first sweep, then cached, so that later sweeps need not open every file.
  const expiries = new Map<string, number>()
  let scanned = false
  // Temporary files of the writes in progress.
  const writing = new Set<string>()
  const sync = coalescing(() => syncFolder(folder))
  let closed = false

  const pathOf = (id: string): string => join(folder, id)

  function assertOpen(): void {
    if (closed) throw new Unavailable('files', new Error('closed'))
  }

  /** `read` is the end of the file, from the offset `from` on: the trailer, and at least so many bytes `before` it if there are. */
  async function opened(id: string, before = 0): Promise<({ handle: FileHandle } & Found) | null> {
    assertOpen()
    if (!isFileId(id)) return null
    return guard(async () => {
      const handle = await open(pathOf(id), constants.O_RDONLY | constants.O_NOFOLLOW).catch(nullIf('ENOENT', 'ELOOP'))
      if (!handle) return null
      const found = await readFacts(handle, id, before).catch(async (error: unknown) => {
        await handle.close()
        throw error
      })
      if (found) return { handle, ...found }
      await handle.close()
      return null
    })
  }

  async function scan(): Promise<void> {
    for (const id of await ids()) {
      const facts = expiries.has(id) ? null : await read(id)
      // If the file was rewritten meanwhile, the expiry noted by its writer is newer.
      if (facts && !expiries.has(id)) expiries.set(id, facts.expiresAt)
    }
    scanned = true
  }

  async function ids(): Promise<string[]> {
    return (await guard(() => readdir(folder))).filter(isFileId).sort()
  }

  async function read(id: string): Promise<FileFacts | null> {
    const file = await opened(id)
    await file?.handle.close()
    return file?.facts ?? null
  }

  async function removeFile(id: string): Promise<void> {
    assertOpen()
    if (!isFileId(id)) return
    await guard(() => rm(pathOf(id), { force: true }))
    expiries.delete(id)
  }

  async function sweepIncoming(now: number): Promise<void> {
    for (const name of await guard(() => readdir(incoming))) {
      if (writing.has(name)) continue
      const path = join(incoming, name)
      const writtenAt = await guard(() => stat(path).then(({ mtimeMs }) => mtimeMs, nullIf('ENOENT')))
      if (writtenAt !== null && writtenAt < now - ABANDONED_MS) await guard(() => rm(path, { force: true }))
    }
  }

  return {
    async put(id, body, { contentType, expiresAt }) {
      assertOpen()
      if (!isFileId(id)) throw new RangeError('not the id of a file')
      const name = `${id}.${randomUUID()}`
      const path = join(incoming, name)
      writing.add(name)
      try {
        const facts = await write(path, body, { id, contentType, expiresAt })
        await guard(async () => {
          await rename(path, pathOf(id))
          await sync()
        })
        expiries.set(id, expiresAt)
        return facts
      } catch (error) {
        await rm(path, { force: true }).catch(() => undefined)
        throw error
      } finally {
        writing.delete(name)
      }
    },

    stat: read,

    async get(id, range) {
      const file = await opened(id, SMALL)
      if (!file) return null
      const { handle, facts, from, read } = file
      const { start, end } = range ?? { start: 0, end: facts.size - 1 }
      if (range && !(start >= 0 && start <= end && end < facts.size)) {
        await handle.close()
        throw new RangeError('the range lies outside the file')
      }
      if (start < from) return { ...facts, stream: handle.createReadStream({ start, end }) }
      await handle.close()
      return { ...facts, stream: Readable.from(read.subarray(start - from, end + 1 - from), { objectMode: false }) }
    },

    remove: removeFile,

    async sweep(now, limit) {
      assertOpen()
      await sweepIncoming(now)
      if (!scanned) await scan()
      const due = [...expiries].filter(([, expiresAt]) => expiresAt <= now).slice(0, limit)
      for (const [id] of due) await removeFile(id)
      return due.length
    },

    async list(after, limit) {
      assertOpen()
      return (await ids()).filter((id) => id > after).slice(0, limit)
    },

    async close() {
      closed = true
    },
  }
}

/** Writes the bytes, then the trailer, and waits until both are synced to disk. Errors of `body` pass through. */
async function write(path: string, body: FileBody, facts: Pick<FileFacts, 'id' | 'contentType' | 'expiresAt'>): Promise<FileFacts> {
  const handle = await guard(() => open(path, 'wx', 0o600))
  try {
    const hash = createHash('sha256')
    const last = body instanceof Uint8Array && body.length <= SMALL ? body : NONE
    let size = last.length
    if (last !== body) {
      for await (const bytes of body instanceof Uint8Array ? [body] : body) {
        hash.update(bytes)
        size += bytes.length
        await guard(() => writeAll(handle, bytes))
      }
    }
    hash.update(last)
    const whole = { ...facts, size, etag: hash.digest('base64url').slice(0, 32) }
    await guard(async () => {
      await writeAll(handle, Buffer.concat([last, trailer(whole)]))
      await handle.sync()
    })
    return whole
  } finally {
    await handle.close().catch(() => undefined)
  }
}

function trailer({ contentType, expiresAt, etag }: FileFacts): Buffer {
  const json = Buffer.from(JSON.stringify({ contentType, expiresAt, etag }))
  const tail = Buffer.alloc(TAIL)
  tail.writeUInt32BE(json.length)
  tail.write(MAGIC, 4)
  return Buffer.concat([json, tail])
}

/** A single write may be partial. */
async function writeAll(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) at += (await handle.write(bytes, at)).bytesWritten
}

/** Syncs the folder: a rename is durable only after that. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY)
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

type Found = { facts: FileFacts; from: number; read: Buffer }

/** The metadata in a file's trailer, with what was read of its end, or null if the file is not ours. */
async function readFacts(handle: FileHandle, id: string, before: number): Promise<Found | null> {
  const { size } = await handle.stat()
  const from = Math.max(0, size - TAIL - TRAILER_MAX - before)
  const read = await readAt(handle, from, size)
  const tail = read.subarray(-TAIL)
  if (read.length < TAIL || tail.toString('latin1', 4) !== MAGIC) return null
  const length = tail.readUInt32BE()
  if (length > read.length - TAIL) return null
  try {
    const { contentType, expiresAt, etag } = JSON.parse(read.toString('utf8', read.length - TAIL - length, read.length - TAIL)) as FileFacts
    return { facts: { id, size: size - TAIL - length, contentType, expiresAt, etag }, from, read }
  } catch {
    return null
  }
}

async function readAt(handle: FileHandle, from: number, to: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(to - from)
  const { bytesRead } = await handle.read(bytes, 0, bytes.length, from)
  return bytes.subarray(0, bytesRead)
}

function nullIf(...codes: string[]): (error: NodeJS.ErrnoException) => null {
  return (error) => {
    if (codes.includes(error.code ?? '')) return null
    throw error
  }
}

/** Maps errors of the file system to `Unavailable`, with their cause. */
async function guard<T>(action: () => Promise<T>): Promise<T> {
  try {
    return await action()
  } catch (error) {
    throw error instanceof Unavailable ? error : new Unavailable('files', error)
  }
}
