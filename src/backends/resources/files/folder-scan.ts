/** A folder of manifest files, looked at again and again. A file is taken over when two looks in a row saw it the same: nobody is still writing it. */
import type { BigIntStats } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { LARGEST_FILE_BYTES, parseDocuments, type Parsed } from './manifest-parser.ts'
import { readRegular } from '../bounded-file.ts'

const MOST_FILES = 5_000
const MANIFEST = /^[^.].*\.(ya?ml|json)$/i

/** One file as it was taken over last. The same `parsed` object as in the look before means that it did not change. */
export type ManifestFile = { name: string; parsed: Parsed }

export type Look =
  /** In the order of the names. `isSettled` is false while a file is still changing: look again soon. */
  | { outcome: 'read'; files: ManifestFile[]; isSettled: boolean }
  | { outcome: 'unreadable'; reason: string }

export type Folder = { look(): Promise<Look> }

type PlanKeyIndex = { seen: string; taken: string | null; parsed: Parsed | null }

export function openFolder(path: string): Folder {
  let known = new Map<string, PlanKeyIndex>()
  let isFirst = true

  /** What is known of a file after this look. The very first look of all takes over at once, so that a start does not wait. */
  async function visit(name: string): Promise<PlanKeyIndex> {
    const before = known.get(name)
    const seen = await signature(join(path, name))
    if (before?.taken === seen) return { ...before, seen }
    if (!isFirst && before?.seen !== seen) return { seen, taken: before?.taken ?? null, parsed: before?.parsed ?? null }
    const parsed = await read(join(path, name))
    const after = await signature(join(path, name))
    if (after !== seen && !isFirst) return { seen: after, taken: before?.taken ?? null, parsed: before?.parsed ?? null }
    return { seen: after, taken: seen, parsed }
  }

  return {
    async look() {
      let names: string[]
      try {
        names = (await readdir(path)).filter((name) => MANIFEST.test(name)).sort()
      } catch (error) {
        return { outcome: 'unreadable', reason: `the folder of manifests cannot be read (${codeOf(error)})` }
      }
      const next = new Map<string, PlanKeyIndex>()
      for (const name of names.slice(0, MOST_FILES)) next.set(name, await visit(name))
      const surplus = { seen: '', taken: '', parsed: broken(`not read: the folder has more than ${MOST_FILES} manifest files`) }
      for (const name of names.slice(MOST_FILES)) next.set(name, surplus)
      known = next
      isFirst = false
      const files = [...next].flatMap(([name, { parsed }]) => (parsed ? [{ name, parsed }] : []))
      return { outcome: 'read', files, isSettled: [...next.values()].every(({ seen, taken }) => seen === taken || seen.startsWith('error')) }
    },
  }
}

/** Changes whenever the file does, also when it is replaced or edited back to the same size. */
async function signature(path: string): Promise<string> {
  try {
    const { ino, size, ctimeNs }: BigIntStats = await stat(path, { bigint: true })
    return `${ino}:${size}:${ctimeNs}`
  } catch (error) {
    return `error:${codeOf(error)}`
  }
}

async function read(path: string): Promise<Parsed> {
  try {
    const file = await readRegular(path, LARGEST_FILE_BYTES)
    if (file.outcome === 'refused') return broken(file.reason === 'tooLarge' ? `larger than ${LARGEST_FILE_BYTES} bytes` : 'not read: it is no regular file')
    return parseDocuments(new TextDecoder('utf-8', { fatal: true }).decode(file.bytes))
  } catch (error) {
    return broken(`cannot be read (${codeOf(error)})`)
  }
}

function broken(reason: string): Parsed {
  return { outcome: 'broken', reason }
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
}
