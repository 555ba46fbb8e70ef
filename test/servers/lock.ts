import { DatabaseSync } from 'node:sqlite'
import { setTimeout as pause } from 'node:timers/promises'

const SQLITE_BUSY = 5

/**
 * Runs `work` under an exclusive lock of `file`. The lock is SQLite's, thus the kernel's: it ends with the process
 * that held it, so that a killed run leaves nothing stale behind. `waiting` is called once if another process holds it.
 */
export async function locked(file: string, waiting: () => void, work: () => Promise<void>): Promise<void> {
  const db = new DatabaseSync(file)
  try {
    for (let notified = false; !taken(db); notified = true) {
      if (!notified) waiting()
      await pause(250)
    }
    await work()
  } finally {
    db.close()
  }
}

function taken(db: DatabaseSync): boolean {
  try {
    db.exec('BEGIN EXCLUSIVE')
    return true
  } catch (error) {
    if (error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY) return false
    throw error
  }
}
