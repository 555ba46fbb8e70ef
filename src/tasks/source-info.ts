/** What the sources of an operation are, by the headers of those that are here: results, uploads and data: URLs. */
import type { FileFacts, Files } from '../backends/files/files.ts'
import { Unavailable } from '../domain/errors.ts'
import { mediaInfo, PREFIX_BYTES, type MediaInfo } from '../domain/media-info.ts'
import { sourcesOf, type OperationBody, type SourceInfo } from '../domain/media-operations.ts'
import type { Upload } from './source-urls.ts'
import type { TaskContext } from './task-context.ts'

/** Pieces of a header that lie apart in their file, where it is read to quote or to store. */
const PIECES_MAX = 8

/** Opens a stored file, or a range of it. Throws `Unavailable` when it is gone. */
export async function openFile(files: Files, id: string, range?: { start: number; end: number }) {
  const file = await files.get(id, range)
  if (!file) throw new Unavailable('files', new Error(`${id} is gone`))
  return file
}

/** Type, size and length of a stored file by its header, which may lie in `most` places; null for what is no media. Throws `Unavailable`. */
export async function infoOf(files: Files, { id, size }: FileFacts, most = PIECES_MAX): Promise<MediaInfo | null> {
  const piece = async (start: number): Promise<Buffer> => {
    const { stream } = await openFile(files, id, { start, end: Math.min(size, start + PREFIX_BYTES) - 1 })
    return Buffer.concat(await stream.toArray())
  }
  const prefix = await piece(0)
  let info = mediaInfo(prefix, size)
  for (let pieces = 1; pieces < most; pieces++) {
    const at = info?.continuesAt ?? size
    if (at >= size) break
    info = mediaInfo(prefix, size, { at, bytes: await piece(at) })
  }
  return info
}

/**
 * The media of a body, without its mask, in their order; null for one at an address of others, which is fetched when the task runs, and for one
 * that cannot be read now.
 */
export async function mediaOf(
  { files, linkedFile }: Pick<TaskContext, 'files' | 'linkedFile'>,
  body: OperationBody,
  uploads: readonly Upload[],
): Promise<SourceInfo[]> {
  const media = sourcesOf(body).filter(({ role }) => role === 'media')
  return Promise.all(
    media.map(async ({ path, from }) => {
      const upload = uploads.find(({ field }) => path === `/${field}`)
      if (upload) return mediaInfo(upload.bytes, upload.bytes.length)
      const id = typeof from === 'string' ? linkedFile(from) : null
      const facts = id === null ? null : await files.stat(id).catch(() => null)
      return facts && facts.size > 0 ? infoOf(files, facts).catch(() => null) : null
    }),
  )
}
