/** Atomic file writes: a temporary file beside the target, then a rename. */
import { randomUUID } from 'node:crypto'
import { mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

/** Prefix of unfinished and discarded files, which the next start removes. */
export const TEMPORARY = '.tmp-'

/** An unused path in the folder of `path`. */
export function temporaryBeside(path: string): string {
  return join(dirname(path), `${TEMPORARY}${randomUUID()}`)
}

/** Writes a file of mode 0600 atomically; creates its folder, mode 0700, if it is missing. */
export async function putFile(path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  const temporary = temporaryBeside(path)
  try {
    await writeFile(temporary, text, { mode: 0o600, flag: 'wx' })
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}
