import { constants } from 'node:fs'
import { open } from 'node:fs/promises'

export type RegularFile = { outcome: 'read'; bytes: Buffer } | { outcome: 'refused'; reason: 'tooLarge' | 'notRegular' }

/**
 * The bytes of a regular file, also behind links, if it has at most that many. Never waits for a writer and never reads on: opening a pipe would hold a thread
 * for good, and a device has no end and says that it is empty. Rejects with the error of the file system.
 */
export async function readRegular(path: string, mostBytes: number): Promise<RegularFile> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    if (!(await file.stat()).isFile()) return { outcome: 'refused', reason: 'notRegular' }
    const bytes = Buffer.concat(await file.createReadStream({ end: mostBytes, autoClose: false }).toArray())
    return bytes.length > mostBytes ? { outcome: 'refused', reason: 'tooLarge' } : { outcome: 'read', bytes }
  } finally {
    await file.close()
  }
}
