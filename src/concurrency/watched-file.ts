/** A configuration file whose changes take effect without a restart. */
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
  let running: Promise<void> | null = null

  async function loadAgain(): Promise<void> {
    try {
      await load()
      lastError = null
    } catch (error) {
      const { message } = error as Error
      if (message !== lastError) refused(error as Error)
      lastError = message
    }
    running = null
  }

  const timer = setInterval(() => (running ??= loadAgain()), pollMs).unref()
  return {
    async reload() {
      await running
      await (running ??= loadAgain())
    },
    async close() {
      clearInterval(timer)
      await running
    },
  }
}
