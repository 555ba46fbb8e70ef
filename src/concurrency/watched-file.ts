/** A configuration file whose changes take effect without a restart. */
import { periodicTask } from './periodic-task.ts'

export type WatchedFile = {
  /** Loads the file now, after a load that is under way. */
  reload(): Promise<void>
  /** Resolves when no load is under way. Closing twice is harmless. */
  close(): Promise<void>
}

/**
 * Loads the file now, rejecting if that fails, and then every `pollMs`: polling misses no change, however the file is replaced. `load` reads it
 * and applies what has changed. What a later load throws goes to `refused` once, not at every poll, and what was applied stays in use.
 */
export async function watchFile(load: () => Promise<void>, refused: (error: Error) => void, pollMs = 1000): Promise<WatchedFile> {
  await load()
  let lastError: string | null = null
  const polling = periodicTask(
    pollMs,
    async () => {
      await load()
      lastError = null
    },
    (error) => {
      const { message } = error as Error
      if (message !== lastError) refused(error as Error)
      lastError = message
    },
  )
  await polling.start()
  return { reload: polling.runNow, close: polling.cancel }
}
