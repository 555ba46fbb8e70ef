/**
 * The user's cache of what the tests run against: `${XDG_CACHE_HOME:-~/.cache}/tollgate/<name>-<version>/`, filled by
 * `npm run servers` and only read by the tests. A folder counts once its marker is there, which is written last.
 */
import { existsSync } from 'node:fs'
import { mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'

/** One thing that can be had: a server, or a client of ours. */
export type Entry = {
  name: string
  version: string
  /** What a test starts or imports, relative to the entry's folder. */
  program: string
  /** What the machine lacks to install it, as a sentence; null when it lacks nothing. */
  lacks(): Promise<string | null>
  /** Fills `folder`, which is there and empty, and writes nowhere else but in the own caches of the toolchain it uses. Rejects with what went wrong. */
  install(folder: string): Promise<void>
}

export const CACHE = join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'tollgate')

const MARKER = 'complete'

export function folderOf(entry: Entry): string {
  return join(CACHE, `${entry.name}-${entry.version}`)
}

/** The path of the entry's program, or null when the cache does not hold it. */
export function find(entry: Entry): string | null {
  return existsSync(join(folderOf(entry), MARKER)) ? join(folderOf(entry), entry.program) : null
}

/** Installs the entry afresh. What an interrupted run left behind goes first; rejects, unmarked, when the install fails. */
export async function fill(entry: Entry): Promise<void> {
  const folder = folderOf(entry)
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true })
  await entry.install(folder)
  if (!existsSync(join(folder, entry.program))) throw new Error(`the install left no ${entry.program}`)
  const marker = join(folder, MARKER)
  await writeFile(`${marker}.part`, `${entry.version}\n`)
  await rename(`${marker}.part`, marker)
}
