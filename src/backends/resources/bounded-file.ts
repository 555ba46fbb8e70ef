/** Reads a regular file up to a maximum size, never a pipe or a device. */
import { constants } from 'node:fs'
import { open } from 'node:fs/promises'

export type RegularFile = { outcome: 'read'; bytes: Buffer } | { outcome: 'refused'; reason: 'tooLarge' | 'notRegular' }

/**
 * The bytes of a regular file of at most `maxBytes`; links are followed. Pipes and devices are refused, since opening a pipe would block a
 * thread for good and a device has no end and a size of 0. Rejects with the error of the file system.
 */
export async function readRegular(path: string, maxBytes: number): Promise<RegularFile> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    if (!(await file.stat()).isFile()) return { outcome: 'refused', reason: 'notRegular' }
    const bytes = Buffer.concat(await file.createReadStream({ end: maxBytes, autoClose: false }).toArray())
    return bytes.length > maxBytes ? { outcome: 'refused', reason: 'tooLarge' } : { outcome: 'read', bytes }
  } finally {
    await file.close()
  }
}
