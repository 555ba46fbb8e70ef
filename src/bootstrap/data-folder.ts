/** The folder that holds secrets: there, and closed to others. */
import { chmod, mkdir, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { FastifyBaseLogger } from 'fastify'
import { ConfigError } from '../config/config.ts'

const OTHERS = 0o077

/** Makes DATA_DIR if it is not there, with mode 0700, and takes from others what they may do in one that is. Throws a `ConfigError` when it cannot be made. */
export async function makeDataFolder(path: string, log: FastifyBaseLogger): Promise<void> {
  await make(path).catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError('DATA_DIR', path, `a folder that can be made and written (${error.code})`)
  })
  const { mode } = await stat(path)
  if ((mode & OTHERS) === 0) return
  // A volume may belong to somebody else, and has to be shared then.
  await chmod(path, mode & 0o7777 & ~OTHERS).catch((err: unknown) => log.warn({ err, folder: path }, 'DATA_DIR is open to others, and cannot be closed: its files are for its owner alone'))
}

/** From above, since Node tries for ever where a folder is there that takes no other, as below /proc. */
async function make(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EEXIST' && (await stat(path)).isDirectory()) return
    if (code !== 'ENOENT' || dirname(path) === path) throw error
    await make(dirname(path))
    await mkdir(path, { mode: 0o700 })
  }
}
