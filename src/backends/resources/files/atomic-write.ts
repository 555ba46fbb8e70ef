import { randomUUID } from 'node:crypto'
import { mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

/** Names that begin like this are unfinished or discarded, and are removed at the next start. */
export const TEMPORARY = '.tmp-'

/** A path beside `path` that nobody uses. */
export function temporaryBeside(path: string): string {
  return join(dirname(path), `${TEMPORARY}${randomUUID()}`)
}

/** Puts a file of mode 0600 there, whole or not at all; its folder is made, mode 0700, if it is not there. */
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
