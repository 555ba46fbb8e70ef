/**
 * Cache of the test servers: `${XDG_CACHE_HOME:-~/.cache}/tollgate/<name>-<version>/`, filled by
 * `npm run servers` and only read by the tests. A folder counts once its marker is there, which is written last.
 */
import { existsSync } from 'node:fs'
import { mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'

/** An installable entry: a server, or a client. */
export type Entry = {
  name: string
  version: string
  /** The program that a test starts or imports, relative to the entry's folder. */
  program: string
  /** The missing prerequisite of the machine, as a sentence; null if there is none. */
  lacks(): Promise<string | null>
  /** Fills `folder`, which exists and is empty, and writes nowhere else except in caches of its toolchain. Rejects on failure. */
  install(folder: string): Promise<void>
}

export const CACHE = join(process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'), 'tollgate')

const MARKER = 'complete'

export function folderOf(entry: Entry): string {
  return join(CACHE, `${entry.name}-${entry.version}`)
}

/** The path of the entry's program, or null when it is not installed. */
export function find(entry: Entry): string | null {
  const program = join(folderOf(entry), entry.program)
  return existsSync(join(folderOf(entry), MARKER)) && existsSync(program) ? program : null
}

/** Installs the entry. Removes the remains of an interrupted run first; rejects, without a marker, when the installation fails. */
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
