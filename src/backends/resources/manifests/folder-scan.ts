/** Scans a folder of manifest files. A file is applied when two scans in a row find it unchanged, so that a file being written is not read half. */
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { MAX_FILE_BYTES, parseDocuments, type Parsed } from './manifest-parser.ts'
import { readRegular } from '../bounded-file.ts'

export const MAX_FILES = 5_000
const MANIFEST = /^[^.].*\.(ya?ml|json)$/i

/** One file as it was applied last. The same `parsed` object as in the scan before means that it did not change. */
export type ManifestFile = { name: string; parsed: Parsed }

/** `id` tells the folder from another one at its path. The files are in the order of their names. `isStable` is false while one is still changing: scan again soon. */
export type ReadFolder = { outcome: 'read'; id: string; files: ManifestFile[]; isStable: boolean }

export type Scan = ReadFolder | { outcome: 'unreadable'; reason: string }

export type Folder = { scan(): Promise<Scan> }

/** `seen` is the signature of the last scan, `applied` that of `parsed`. */
type FileState = { seen: string; applied: string | null; parsed: Parsed | null }

export function openFolder(path: string): Folder {
  let states = new Map<string, FileState>()
  let isFirst = true

  /** State of a file after this scan. The first scan of all applies every file at once, so that the start does not wait. */
  async function scanFile(name: string): Promise<FileState> {
    const before = states.get(name)
    const sign = () => signature(join(path, name)).catch((error: unknown) => `error:${codeOf(error)}`)
    const seen = await sign()
    if (before?.applied === seen) return { ...before, seen }
    if (!isFirst && before?.seen !== seen) return { seen, applied: before?.applied ?? null, parsed: before?.parsed ?? null }
    const parsed = await read(join(path, name))
    const after = await sign()
    if (after !== seen && !isFirst) return { seen: after, applied: before?.applied ?? null, parsed: before?.parsed ?? null }
    return { seen: after, applied: seen, parsed }
  }

  return {
    async scan() {
      let id: string
      let names: string[]
      try {
        const { dev, ino } = await stat(path, { bigint: true })
        id = `${dev}:${ino}`
        names = await manifestNames(path)
      } catch (error) {
        return { outcome: 'unreadable', reason: `the folder of manifests cannot be read (${codeOf(error)})` }
      }
      const next = new Map<string, FileState>()
      for (const name of names.slice(0, MAX_FILES)) next.set(name, await scanFile(name))
      const surplus = { seen: '', applied: '', parsed: broken(`not read: the folder has more than ${MAX_FILES} manifest files`) }
      for (const name of names.slice(MAX_FILES)) next.set(name, surplus)
      states = next
      isFirst = false
      const files = [...next].flatMap(([name, { parsed }]) => (parsed ? [{ name, parsed }] : []))
      return {
        outcome: 'read',
        id,
        files,
        isStable: [...next.values()].every(({ seen, applied }) => seen === applied || seen.startsWith('error')),
      }
    },
  }
}

/** The manifest files of a folder, in their order. */
export async function manifestNames(path: string): Promise<string[]> {
  return (await readdir(path)).filter((name) => MANIFEST.test(name)).sort()
}

/** Changes with every change of the file, also when it is replaced or edited back to the same size. */
export async function signature(path: string): Promise<string> {
  const { ino, size, ctimeNs } = await stat(path, { bigint: true })
  return `${ino}:${size}:${ctimeNs}`
}

async function read(path: string): Promise<Parsed> {
  try {
    const file = await readRegular(path, MAX_FILE_BYTES)
    if (file.outcome === 'refused')
      return broken(file.reason === 'tooLarge' ? `larger than ${MAX_FILE_BYTES} bytes` : 'not read: it is not a regular file')
    return parseDocuments(new TextDecoder('utf-8', { fatal: true }).decode(file.bytes))
  } catch (error) {
    return broken(`cannot be read (${codeOf(error)})`)
  }
}

function broken(reason: string): Parsed {
  return { outcome: 'broken', reason }
}

/** The code of an error of the file system. */
export function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
}
