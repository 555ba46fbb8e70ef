/** DATA_DIR: created with mode 0700, closed to group and others. */
import { chmod, mkdir, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { FastifyBaseLogger } from 'fastify'
import { ConfigError } from '../config/setting-types.ts'

const OTHERS = 0o077

/** Creates DATA_DIR with mode 0700, or removes the rights of group and others from an existing one. Throws a `ConfigError` when it cannot be created. */
export async function makeDataFolder(path: string, log: FastifyBaseLogger): Promise<void> {
  await make(path).catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError('DATA_DIR', path, `a folder that can be made and written (${error.code})`)
  })
  const { mode } = await stat(path)
  if ((mode & OTHERS) === 0) return
  // A mounted volume may belong to another user: then its mode cannot be changed.
  await chmod(path, mode & 0o7777 & ~OTHERS).catch((err: unknown) =>
    log.warn({ event: 'data_dir_open', err, folder: path }, 'DATA_DIR is open to other users and its mode cannot be changed'),
  )
}

/** Creates parents first: the recursive mkdir of Node retries for ever below a folder that accepts no other, such as /proc. */
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
