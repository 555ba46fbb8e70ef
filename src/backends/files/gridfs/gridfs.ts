/**
 * Files backend in MongoDB, for many processes. Chunks and files are in two collections as in GridFS, but not written by the driver's
 * GridFSBucket, which cannot keep the promises of the backend: it does not replace a file atomically, removes chunks while they are read,
 * reads through a cursor that the server drops after ten idle minutes (a paused video), and has no expiry. The collections are
 * - `results.files`: one document per file, whose `_id` is the file's id. That document is the commit: it names the chunks (`chunksId`) and
 *   is written after them, or holds the bytes of a small file itself (`data`), which then has no chunks;
 * - `results.chunks`: the bytes, as in GridFS: `files_id` (the `chunksId`), `n`, `data`;
 * - `results.unused`: chunks that may be unreferenced. They are noted before they are written, before a file is removed, and before it is
 *   replaced, and forgotten once a file references them. A day later the sweep removes those without a file: until then their writer or a
 *   reader may still use them.
 */
import { createHash, randomUUID, type Hash } from 'node:crypto'
import { Readable } from 'node:stream'
import { Binary, type Collection, type Db } from 'mongodb'
import { Unavailable } from '../../../domain/errors.ts'
import { isFileId, type FileFacts, type Files } from '../files.ts'
import { createBatcher } from '../../../concurrency/batching.ts'
import { partsOf } from '../body-parts.ts'
import { isDuplicate, isOutcomeUnknown } from '../../mongodb/driver-errors.ts'
import { connect, guard, patiently } from './gridfs-client.ts'
import { openUnusedChunks, UNUSED_MS, type UnusedDocument } from './unused-chunks.ts'

/** `length`, `chunkSize` and `uploadDate` as in GridFS. `expiresAt`: epoch milliseconds. */
type FileDocument = {
  _id: string
  chunksId: string
  length: number
  chunkSize: number
  uploadDate: Date
  contentType: string
  expiresAt: number
  etag: string
  data?: Binary
}
type ChunkDocument = { files_id: string; n: number; data: Binary }

type Collections = { files: Collection<FileDocument>; chunks: Collection<ChunkDocument>; unused: Collection<UnusedDocument> }

const CHUNK_BYTES = 1024 * 1024
/** Bytes per insert, and in memory per body. */
const BATCH_BYTES = 2 * CHUNK_BYTES
/** A file up to this size is one document and one command, and its metadata are as cheap to read as without bytes. */
const SMALL_BYTES = 64 * 1024
const MAX_BATCH = 64
const CONTENDERS = 20

/** Opens the files in the MongoDB of `storeUrl`, and creates the indexes unless they are only read. Throws like `openFiles`. */
export async function openGridfs(storeUrl: string, readOnly = false): Promise<Files> {
  const { client, db } = await connect(storeUrl, async (db) => (readOnly ? undefined : makeIndexes(collectionsOf(db))))
  return filesIn(collectionsOf(db), () => client.close())
}

function collectionsOf(db: Db): Collections {
  return { files: db.collection('results.files'), chunks: db.collection('results.chunks'), unused: db.collection('results.unused') }
}

/** Each index with its query; all other queries use `_id`. Creating an existing index changes nothing. */
async function makeIndexes({ files, chunks, unused }: Collections): Promise<void> {
  // Sweep of expired files.
  await files.createIndex({ expiresAt: 1 })
  // Whether a file references these chunks.
  await files.createIndex({ chunksId: 1 })
  // Reading in order, and no duplicates.
  await chunks.createIndex({ files_id: 1, n: 1 }, { unique: true })
  await unused.createIndex({ due: 1 })
}

function filesIn(collections: Collections, closeClient: () => Promise<void>): Files {
  const { files, chunks } = collections
  // Chunks being written by this process.
  const writing = new Set<string>()
  const { noteUnused, sweepUnused } = openUnusedChunks(collections, writing)
  let closed = false

  function assertOpen(): void {
    if (closed) throw new Unavailable('files', new Error('closed'))
  }

  async function find(id: string): Promise<FileDocument | null> {
    assertOpen()
    return isFileId(id) ? guard(() => files.findOne({ _id: id })) : null
  }

  // When one insert of a command fails, all inserts of that command read their outcome.
  const insert = createBatcher<FileDocument, void>({
    backend: 'files',
    async send(documents) {
      await files.insertMany(documents, { ordered: false })
      return documents.map(() => ({ answer: undefined }))
    },
    idOf: ({ _id }) => _id,
    shares: false,
    most: MAX_BATCH,
    weigh: ({ length }) => length,
  })

  /** Publishes the file, replacing an earlier one. A lost answer is resolved by a read. */
  async function commit(document: FileDocument): Promise<void> {
    const { _id, chunksId } = document
    for (let turn = 0; turn < CONTENDERS; turn++) {
      // Almost every file is the first with its id: an insert is tried before a read.
      const earlier = turn === 0 ? null : await patiently(() => files.findOne({ _id }, { projection: { chunksId: 1 } }))
      if (earlier?.chunksId === chunksId) return
      if (earlier) await noteUnused([earlier.chunksId])
      const done = await (
        earlier
          ? files.replaceOne({ _id, chunksId: earlier.chunksId }, document).then((result) => result.matchedCount === 1)
          : insert(document).then(() => true)
      ).catch((error: unknown) => {
        if (isOutcomeUnknown(error) || isDuplicate(error)) return false
        throw new Unavailable('files', error)
      })
      if (done) return
    }
    throw new Unavailable('files', new Error('too many writers of one file'))
  }

  return {
    async put(id, body, { contentType, expiresAt }) {
      assertOpen()
      if (!isFileId(id)) throw new RangeError('not the id of a file')
      const chunksId = randomUUID()
      const commitAs = async ({ size, etag }: Content, data?: Binary): Promise<FileFacts> => {
        assertOpen()
        const document = {
          _id: id,
          chunksId,
          length: size,
          chunkSize: CHUNK_BYTES,
          uploadDate: new Date(),
          contentType,
          expiresAt,
          etag,
          ...(data && { data }),
        }
        await commit(document)
        return factsOf(document)
      }
      const startedAt = Date.now()
      const parts = partsOf(body, BATCH_BYTES)
      writing.add(chunksId)
      try {
        const first = (await parts.next()).value ?? Buffer.alloc(0)
        if (first.length <= SMALL_BYTES)
          return await commitAs({ size: first.length, etag: etagOf(createHash('sha256').update(first)) }, new Binary(first))
        const takeBack = await noteUnused([chunksId])
        const content = await writeChunks(chunks, chunksId, first, parts).catch(async (error: unknown) => {
          // An error of the body says nothing about the server: the chunks are removed at once. The sweep removes those that this misses.
          if (!(error instanceof Unavailable))
            await guard(() => chunks.deleteMany({ files_id: chunksId }))
              .then(takeBack)
              .catch(() => undefined)
          throw error
        })
        if (Date.now() > startedAt + UNUSED_MS / 2) throw new Unavailable('files', new Error('the body took longer than chunks are kept'))
        const facts = await commitAs(content)
        await takeBack().catch(() => undefined)
        return facts
      } finally {
        writing.delete(chunksId)
        // Releases the body, however far it was read.
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
      const due = await guard(() =>
        files.find({ expiresAt: { $lte: now } }, { projection: { chunksId: 1 }, sort: { expiresAt: 1 }, limit }).toArray(),
      )
      const chunksIds = due.map(({ chunksId }) => chunksId)
      await noteUnused(chunksIds)
      const { deletedCount } = due.length > 0 ? await guard(() => files.deleteMany({ chunksId: { $in: chunksIds } })) : { deletedCount: 0 }
      await sweepUnused(now)
      return deletedCount
    },

    async list(after, limit) {
      assertOpen()
      const found = await guard(() => files.find({ _id: { $gt: after } }, { projection: { _id: 1 }, sort: { _id: 1 }, limit }).toArray())
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

async function writeChunks(
  chunks: Collection<ChunkDocument>,
  chunksId: string,
  first: Buffer,
  others: AsyncGenerator<Buffer>,
): Promise<Content> {
  const hash = createHash('sha256')
  let size = 0
  for (let part: Buffer | undefined = first; part; part = (await others.next()).value) {
    const documents: ChunkDocument[] = []
    for (let at = 0; at < part.length; at += CHUNK_BYTES) {
      documents.push({ files_id: chunksId, n: (size + at) / CHUNK_BYTES, data: new Binary(part.subarray(at, at + CHUNK_BYTES)) })
    }
    hash.update(part)
    size += part.length
    // Unordered, so that a second attempt inserts what the first one did not.
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

/** One query per chunk: a paused reader holds nothing on the server, and reading survives a restart of the server. */
async function* bytesOf(
  chunks: Collection<ChunkDocument>,
  { chunksId, length, data }: FileDocument,
  start: number,
  end: number,
): AsyncGenerator<Uint8Array> {
  if (data) return yield data.value().subarray(start, end + 1)
  for (let n = Math.floor(start / CHUNK_BYTES); n * CHUNK_BYTES <= end; n++) {
    const chunk = await patiently(() => chunks.findOne({ files_id: chunksId, n }))
    const from = n * CHUNK_BYTES
    if (chunk?.data.length() !== Math.min(CHUNK_BYTES, length - from))
      throw new Unavailable('files', new Error(`chunk ${n} of ${chunksId} is missing`))
    yield chunk.data.value().subarray(Math.max(0, start - from), end + 1 - from)
  }
}
