/** What the sources of a task are, by the headers of those that are here: results, uploads and data: URLs. */
import { addAbortSignal } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type { FileFacts, Files } from '../backends/files/files.ts'
import { Unavailable } from '../domain/errors.ts'
import type { Limits } from '../domain/media-generations.ts'
import { counted, openBudget, type Budget } from '../domain/media-info/counted-length.ts'
import { mediaInfo, readMediaInfo, type MediaInfo } from '../domain/media-info.ts'
import { putNewest } from '../domain/long-lived-maps.ts'
import { lengthRead, sourceLimits, sourcesOf, type OperationRequest, type Sourced, type SourceInfo } from '../domain/media-operations.ts'
import { lengthAbove, pixelsAbove, type TaskErrorDetails } from '../domain/task.ts'
import type { Upload, UrlChecks } from './source-urls.ts'

/** Pieces of a header that lie apart in their file, where it is read to quote or to store. */
const PIECES_MAX = 8

/** Opens a stored file, or a range of it. Throws `Unavailable` when it is gone. */
export async function openFile(files: Files, id: string, range?: { start: number; end: number }) {
  const file = await files.get(id, range)
  if (!file) throw new Unavailable('files', new Error(`${id} is gone`))
  return file
}

/** `most`: in how many places a header may lie. `signal` ends reading. `budget`: what counting may take. */
export type Reading = { most?: number; signal?: AbortSignal; budget?: Budget }

/**
 * Type, size and length of a stored file by its header; a length that the header does not tell is counted. Null for what is no media. Throws
 * `Unavailable`, and once `signal` is aborted.
 */
export async function infoOf(
  files: Files,
  { id, size }: FileFacts,
  { most = PIECES_MAX, signal, budget = openBudget() }: Reading = {},
): Promise<MediaInfo | null> {
  const piece = async (start: number, bytes: number): Promise<Uint8Array> => {
    signal?.throwIfAborted()
    const { stream } = await openFile(files, id, { start, end: Math.min(size, start + bytes) - 1 })
    return Buffer.concat(await (signal ? addAbortSignal(signal, stream) : stream).toArray())
  }
  return counted(await readMediaInfo(size, most, piece), size, budget, piece)
}

/** What stored files are, by `infoOf`. */
export type FileInfo = (file: FileFacts, budget?: Budget) => Promise<MediaInfo | null>

/** Files whose facts are remembered. */
const KNOWN_MAX = 10_000

/** Reads each file once, however often it is quoted: files do not change, and counting a length may take a second. */
export function openFileInfo(files: Files): FileInfo {
  const known = new Map<string, Promise<MediaInfo | null>>()
  const whole = openBudget()
  return (file, budget = openBudget()) => {
    const found = known.get(file.id)
    if (found) return found
    const isOwn = budget.parts === whole.parts && budget.bytes === whole.bytes
    const reading = infoOf(files, file, { budget })
    const remember = () => putNewest(known, file.id, reading, KNOWN_MAX)
    // The sources before it may use up what counting may take: others are not given what is left.
    if (isOwn) remember()
    reading.then(
      () => isOwn || (budget.parts > 0 && budget.bytes > 0 && remember()),
      () => known.delete(file.id),
    )
    return reading
  }
}

/** Others have their turn between the pieces. */
const uploadInfo = ({ bytes }: Upload, budget: Budget): Promise<MediaInfo | null> =>
  counted(mediaInfo(bytes, bytes.length), bytes.length, budget, (start, most) => setImmediate(bytes.subarray(start, start + most)))

/**
 * The sources of a body in their order; null for one at an address of others, which is fetched when the task runs, and for one that cannot be
 * read now. What counting takes is bounded for all together.
 */
export async function sourcesHere(
  { files, fileInfo, linkedFile }: { files: Files; fileInfo: FileInfo } & Pick<UrlChecks, 'linkedFile'>,
  body: Sourced,
  uploads: readonly Upload[],
): Promise<SourceInfo[]> {
  const budget = openBudget()
  const linkedInfo = async (url: string): Promise<SourceInfo> => {
    const id = linkedFile(url)
    const facts = id === null ? null : await files.stat(id).catch(() => null)
    const info = facts && facts.size > 0 ? await fileInfo(facts, budget).catch(() => null) : null
    return info && facts && { ...info, bytes: facts.size }
  }
  const infos: SourceInfo[] = []
  for (const { path, from } of sourcesOf(body)) {
    const upload = uploads.find(({ field }) => path === `/${field}`)
    const info = upload && (await uploadInfo(upload, budget))
    if (upload) infos.push(info ? { ...info, bytes: upload.bytes.length } : null)
    else infos.push(typeof from === 'string' ? await linkedInfo(from) : null)
  }
  return infos
}

/** What the header of a source says that is above the limits `max` of the route, or null. `request`: of an operation; null for a generation. */
export function aboveLimits(
  kind: string,
  request: OperationRequest | null,
  { width, height, durationMs }: Pick<MediaInfo, 'width' | 'height' | 'durationMs'>,
  max: Limits,
): TaskErrorDetails | null {
  const { pixels } = sourceLimits(kind, max)
  if (width && height && width * height > pixels) return pixelsAbove(width, height, pixels)
  const readMs = request ? lengthRead(request, durationMs ?? 0) : 0
  return readMs > max.durationMs ? lengthAbove(readMs, max.durationMs) : null
}
