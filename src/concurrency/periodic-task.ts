/** A task that a process repeats, such as writing what it has counted. */
export type PeriodicTask = {
  start(): Promise<void>
  /** Runs the task a last time, unless it has just failed: its backend may be unavailable. */
  stop(): Promise<void>
}

/** Runs `run` every `periodMs`, never twice at a time. Its errors go to `failed`. */
export function periodicTask(periodMs: number, run: () => Promise<void>, failed: (error: unknown) => void): PeriodicTask {
  let timer: NodeJS.Timeout | undefined
  let running: Promise<void> | null = null
  let hasFailed = false

  function runOnce(): Promise<void> {
    const ended = (error?: unknown) => {
      running = null
      hasFailed = error !== undefined
      if (hasFailed) failed(error)
    }
    return (running ??= run().then(() => ended(), ended))
  }

  return {
    async start() {
      timer = setInterval(() => void runOnce(), periodMs)
    },
    async stop() {
      clearInterval(timer)
      await running
      if (!hasFailed) await runOnce()
    },
  }
}
