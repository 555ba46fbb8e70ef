/** One program at a time on a folder or a database file. The lock is SQLite's and thus the kernel's: it goes with the process, so that a killed one leaves nothing stale behind. */
import { open } from 'node:fs/promises'
import { DatabaseSync } from 'node:sqlite'
import { ConfigError } from '../config/config.ts'

const SQLITE_BUSY = 5

/** Takes the lock that lies in `file`, for the program whose `setting` was `value`. Throws a `ConfigError` when another process holds it, or the file cannot be written. */
export async function lock(file: string, setting: string, value: string): Promise<{ close(): Promise<void> }> {
  const db = await openAt(file, setting, value)
  try {
    db.exec('BEGIN EXCLUSIVE')
  } catch (error) {
    db.close()
    const isBusy = error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY
    throw new ConfigError(setting, value, isBusy ? 'one that no other running program uses: stop that one, or give each its own' : 'one whose files can be locked')
  }
  return {
    async close() {
      if (db.isOpen) db.close()
    },
  }
}

async function openAt(file: string, setting: string, value: string): Promise<DatabaseSync> {
  try {
    // SQLite would make the file readable for all.
    await (await open(file, 'a', 0o600)).close()
    return new DatabaseSync(file)
  } catch (error) {
    throw new ConfigError(setting, value, `one that can be written (${(error as NodeJS.ErrnoException).code ?? 'error'})`)
  }
}
