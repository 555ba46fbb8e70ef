/** Process lock: one process per data folder or database file. The lock is SQLite's and thus the kernel's, so a killed process leaves no stale lock. */
import { open } from 'node:fs/promises'
import { DatabaseSync } from 'node:sqlite'
import { ConfigError } from '../config/setting-types.ts'

const SQLITE_BUSY = 5

/** Locks `file`, for the sake of `setting` with its `value`. Throws a `ConfigError` when another process holds the lock or the file cannot be written. */
export async function lock(file: string, setting: string, value: string): Promise<{ close(): Promise<void> }> {
  const db = await openAt(file, setting, value)
  try {
    db.exec('BEGIN EXCLUSIVE')
  } catch (error) {
    db.close()
    const { errcode, message } = error as Error & { errcode?: number }
    throw new ConfigError(
      setting,
      value,
      errcode === SQLITE_BUSY
        ? 'one that no other running program uses: stop that one, or give each its own'
        : `one whose files can be written and locked (${message})`,
    )
  }
  return {
    async close() {
      if (db.isOpen) db.close()
    },
  }
}

async function openAt(file: string, setting: string, value: string): Promise<DatabaseSync> {
  try {
    // SQLite would create the file readable for everybody.
    await (await open(file, 'a', 0o600)).close()
    return new DatabaseSync(file)
  } catch (error) {
    throw new ConfigError(setting, value, `one that can be written (${(error as NodeJS.ErrnoException).code ?? 'error'})`)
  }
}
