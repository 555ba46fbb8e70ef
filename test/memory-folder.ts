import { existsSync, statfsSync } from 'node:fs'
import { tmpdir } from 'node:os'

const LEAST_FREE_BYTES = 1024 ** 3

/** Where tests keep stores and small files, in memory where there is enough: with each write a store waits for its disk, which others use as well. */
export const MEMORY = existsSync('/dev/shm') && isFree('/dev/shm') ? '/dev/shm' : tmpdir()

function isFree(folder: string): boolean {
  const { bavail, bsize } = statfsSync(folder)
  return bavail * bsize > LEAST_FREE_BYTES
}
