/** A task that a process repeats, such as writing what it has counted. */
export type PeriodicTask = {
  start(): Promise<void>
  /** Runs the task a last time. */
  stop(): Promise<void>
}

/** Runs `run` every `periodMs`, never twice at a time. Its errors go to `failed`. */
export function periodicTask(periodMs: number, run: () => Promise<void>, failed: (error: unknown) => void): PeriodicTask {
  let timer: NodeJS.Timeout | undefined
  let running: Promise<void> | null = null
  const runOnce = () => (running ??= run().catch(failed).finally(() => (running = null)))
  return {
    async start() {
      timer = setInterval(() => void runOnce(), periodMs)
    },
    async stop() {
      clearInterval(timer)
      await running
      await runOnce()
    },
  }
}
