/**
 * Files in MongoDB, for many processes. Chunks and files lie in two collections as in GridFS, but are written here and not through the driver's GridFSBucket, which cannot
 * do what the backend promises: it replaces no file at one stroke, takes a removed file's chunks away from those who are reading it, reads through a cursor that the
 * server drops after ten minutes without a question (a paused video), and knows no expiry. So here
 * - `results.files` has one document an id, `_id` being the id, and that document is the commit: it names the chunks (`chunksId`), and is written after them, or has the
 *   bytes of a small file itself (`data`), which then has no chunks;
 * - `results.chunks` has the bytes, as GridFS has: `files_id` (the `chunksId`), `n`, `data`;
 * - `results.unused` names chunks that no file may need: noted before they are written, before a file is removed, and before it is replaced; forgotten once a file needs
 *   them. A day later the sweep removes those that no file names: until then their writer or a reader may be at them.
 */
import { createHash, randomUUID, type Hash } from 'node:crypto'
import { Readable } from 'node:stream'
import { Binary, type Collection, type Db } from 'mongodb'
import { Unavailable } from '../../../domain/errors.ts'
import { isFileId, type FileFacts, type Files } from '../files.ts'
import { createBatcher } from '../../../concurrency/batching.ts'
import { partsOf } from '../body-parts.ts'
import { connect, guard, isDuplicate, mayPass, patiently } from './gridfs-client.ts'

/** `length`, `chunkSize` and `uploadDate` as in GridFS. `expiresAt`: epoch milliseconds. */
type FileDocument = { _id: string; chunksId: string; length: number; chunkSize: number; uploadDate: Date; contentType: string; expiresAt: number; etag: string; data?: Binary }
type ChunkDocument = { files_id: string; n: number; data: Binary }
/** `due`: epoch milliseconds. `note` tells one noting from the next, so that nobody takes back another's. */
type UnusedDocument = { _id: string; due: number; note: string }

type Collections = { files: Collection<FileDocument>; chunks: Collection<ChunkDocument>; unused: Collection<UnusedDocument> }

const CHUNK_BYTES = 1024 * 1024
/** Bytes that one insert carries, and one body holds in memory. */
const BATCH_BYTES = 2 * CHUNK_BYTES
/** A file this small is one document and one command, and is as cheap to look at as one without bytes. */
const SMALL_BYTES = 64 * 1024
const MOST_SMALL = 16
const UNUSED_MS = 24 * 3600 * 1000
const UNUSED_BATCH = 100
const CONTENDERS = 20

/** Opens the files in the MongoDB of `storeUrl`, and makes the indexes. Throws as `openFiles` says. */
export async function openGridfs(storeUrl: string): Promise<Files> {
  const { client, db } = await connect(storeUrl, async (db) => makeIndexes(collectionsOf(db)))
  return filesIn(collectionsOf(db), () => client.close())
}

function collectionsOf(db: Db): Collections {
  return { files: db.collection('results.files'), chunks: db.collection('results.chunks'), unused: db.collection('results.unused') }
}

/** Each beside what it serves; `_id` serves the rest. Making one that is there changes nothing. */
async function makeIndexes({ files, chunks, unused }: Collections): Promise<void> {
  // The sweep of what is due.
  await files.createIndex({ expiresAt: 1 })
  // Does a file need these chunks?
  await files.createIndex({ chunksId: 1 })
  // Reading in order, and writing none twice.
  await chunks.createIndex({ files_id: 1, n: 1 }, { unique: true })
  await unused.createIndex({ due: 1 })
}

function filesIn(collections: Collections, closeClient: () => Promise<void>): Files {
  const { files, chunks, unused } = collections
  // Chunks that are being written here.
  const writing = new Set<string>()
  let closed = false

  function assertOpen(): void {
    if (closed) throw new Unavailable('files', new Error('closed'))
  }

  /** Says that no file may need these chunks from now on. Returns what takes that back, unless somebody said it again. */
  async function noteUnused(ids: string[]): Promise<() => Promise<unknown>> {
    const note = randomUUID()
    const update = { $set: { due: Date.now() + UNUSED_MS, note } }
    if (ids.length > 0) await patiently(() => unused.bulkWrite(ids.map((_id) => ({ updateOne: { filter: { _id }, update, upsert: true } })), { ordered: false }))
    return () => guard(() => unused.deleteMany({ _id: { $in: ids }, note }))
  }

  async function find(id: string): Promise<FileDocument | null> {
    assertOpen()
    return isFileId(id) ? guard(() => files.findOne({ _id: id })) : null
  }

  // Where one fails, all of its command look at what became of them.
  const insert = createBatcher<FileDocument, void>({
    backend: 'files',
    async send(documents) {
      await files.insertMany(documents, { ordered: false })
      return documents.map(() => ({ answer: undefined }))
    },
    idOf: ({ _id }) => _id,
    shares: false,
    most: MOST_SMALL,
  })

  /** Makes the file appear, in place of an earlier one if there is one. A lost answer is cleared up by looking. */
  async function commit(document: FileDocument): Promise<void> {
    const { _id, chunksId } = document
    for (let turn = 0; turn < CONTENDERS; turn++) {
      // Almost every file is the first of its id: that is tried before anybody looks.
      const earlier = turn === 0 ? null : await patiently(() => files.findOne({ _id }, { projection: { chunksId: 1 } }))
      if (earlier?.chunksId === chunksId) return
      if (earlier) await noteUnused([earlier.chunksId])
      const done = await (earlier ? files.replaceOne({ _id, chunksId: earlier.chunksId }, document).then((result) => result.matchedCount === 1) : insert(document).then(() => true)).catch(
        (error: unknown) => {
          if (mayPass(error)) return false
          throw new Unavailable('files', error)
        },
      )
      if (done) return
    }
    throw new Unavailable('files', new Error('too many writers of one file'))
  }

  async function sweepUnused(now: number): Promise<void> {
    const due = await guard(() => unused.find({ due: { $lte: now } }).sort({ due: 1 }).limit(UNUSED_BATCH + writing.size).toArray())
    for (const { _id, note } of due) {
      if (writing.has(_id)) continue
      await guard(async () => {
        if (!(await files.findOne({ chunksId: _id }, { projection: { _id: 1 } }))) await chunks.deleteMany({ files_id: _id })
        await unused.deleteOne({ _id, note })
      })
    }
  }

  return {
    async put(id, body, { contentType, expiresAt }) {
      assertOpen()
      if (!isFileId(id)) throw new RangeError('not the id of a file')
      const chunksId = randomUUID()
      const commitAs = async ({ size, etag }: Content, data?: Binary): Promise<FileFacts> => {
        assertOpen()
        const document = { _id: id, chunksId, length: size, chunkSize: CHUNK_BYTES, uploadDate: new Date(), contentType, expiresAt, etag, ...(data && { data }) }
        await commit(document)
        return factsOf(document)
      }
      const startedAt = Date.now()
      const parts = partsOf(body, BATCH_BYTES)
      writing.add(chunksId)
      try {
        const first = (await parts.next()).value ?? Buffer.alloc(0)
        if (first.length <= SMALL_BYTES) return await commitAs({ size: first.length, etag: etagOf(createHash('sha256').update(first)) }, new Binary(first))
        const takeBack = await noteUnused([chunksId])
        const content = await writeChunks(chunks, chunksId, first, parts).catch(async (error: unknown) => {
          // What the body threw says nothing of the server: the chunks can go at once. What this misses, the sweep finds.
          if (!(error instanceof Unavailable)) await guard(() => chunks.deleteMany({ files_id: chunksId })).then(takeBack).catch(() => undefined)
          throw error
        })
        if (Date.now() > startedAt + UNUSED_MS / 2) throw new Unavailable('files', new Error('the body took longer than chunks are kept'))
        const facts = await commitAs(content)
        await takeBack().catch(() => undefined)
        return facts
      } finally {
        writing.delete(chunksId)
        // The body is let go of, however far it was read.
        await parts.return(undefined)
      }
    },

    async stat(id) {
      const document = await find(id)
      return document && factsOf(document)
    },

    async get(id, range) {
      const document = await find(id)
      if (!document) return null
      const { start, end } = range ?? { start: 0, end: document.length - 1 }
      if (range && !(start >= 0 && start <= end && end < document.length)) throw new RangeError('the range lies outside the file')
      return { ...factsOf(document), stream: Readable.from(bytesOf(chunks, document, start, end), { objectMode: false }) }
    },

    async remove(id) {
      const document = await find(id)
      if (!document) return
      await noteUnused([document.chunksId])
      await patiently(() => files.deleteOne({ _id: id, chunksId: document.chunksId }))
    },

    async sweep(now, limit) {
      assertOpen()
      const due = await guard(() => files.find({ expiresAt: { $lte: now } }, { projection: { chunksId: 1 } }).sort({ expiresAt: 1 }).limit(limit).toArray())
      const chunksIds = due.map(({ chunksId }) => chunksId)
      await noteUnused(chunksIds)
      const { deletedCount } = due.length > 0 ? await guard(() => files.deleteMany({ chunksId: { $in: chunksIds } })) : { deletedCount: 0 }
      await sweepUnused(now)
      return deletedCount
    },

    async list(after, limit) {
      assertOpen()
      const found = await guard(() => files.find({ _id: { $gt: after } }, { projection: { _id: 1 } }).sort({ _id: 1 }).limit(limit).toArray())
      return found.map(({ _id }) => _id)
    },

    async close() {
      closed = true
      await closeClient().catch(() => undefined)
    },
  }
}

function factsOf({ _id, length, contentType, expiresAt, etag }: FileDocument): FileFacts {
  return { id: _id, size: length, contentType, expiresAt, etag }
}

type Content = { size: number; etag: string }

async function writeChunks(chunks: Collection<ChunkDocument>, chunksId: string, first: Buffer, others: AsyncGenerator<Buffer>): Promise<Content> {
  const hash = createHash('sha256')
  let size = 0
  for (let part: Buffer | undefined = first; part; part = (await others.next()).value) {
    const documents: ChunkDocument[] = []
    for (let at = 0; at < part.length; at += CHUNK_BYTES) {
      documents.push({ files_id: chunksId, n: (size + at) / CHUNK_BYTES, data: new Binary(part.subarray(at, at + CHUNK_BYTES)) })
    }
    hash.update(part)
    size += part.length
    // Not in order, so that a second attempt brings what the first did not.
    await patiently(() => chunks.insertMany(documents, { ordered: false }).catch(unlessDuplicate))
  }
  return { size, etag: etagOf(hash) }
}

function etagOf(hash: Hash): string {
  return hash.digest('base64url').slice(0, 32)
}

function unlessDuplicate(error: unknown): void {
  if (!isDuplicate(error)) throw error
}

/** One question a chunk: nothing lies on the server while the reader pauses, and a server that went away and came back is not noticed. */
async function* bytesOf(chunks: Collection<ChunkDocument>, { chunksId, length, data }: FileDocument, start: number, end: number): AsyncGenerator<Uint8Array> {
  if (data) return yield data.value().subarray(start, end + 1)
  for (let n = Math.floor(start / CHUNK_BYTES); n * CHUNK_BYTES <= end; n++) {
    const chunk = await patiently(() => chunks.findOne({ files_id: chunksId, n }))
    const from = n * CHUNK_BYTES
    if (chunk?.data.length() !== Math.min(CHUNK_BYTES, length - from)) throw new Unavailable('files', new Error(`chunk ${n} of ${chunksId} is missing`))
    yield chunk.data.value().subarray(Math.max(0, start - from), end + 1 - from)
  }
}
