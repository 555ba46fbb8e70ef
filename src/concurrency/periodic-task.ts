/** A task that a process repeats, such as writing what it has counted. Its timer does not keep the process alive. */
export type PeriodicTask = {
  start(): Promise<void>
  /** Runs the task a last time, unless it has just failed: its backend may be unavailable. */
  stop(): Promise<void>
}

/** What a task offers whose last run is of no use. */
export type CancelableTask = PeriodicTask & {
  /** Runs the task now, after a run that is in progress. */
  runNow(): Promise<void>
  /** Ends the task; resolves when no run is in progress. Idempotent. */
  cancel(): Promise<void>
}

/** Runs `run` every `periodMs`, never twice at a time. Its errors go to `failed`. */
export function periodicTask(periodMs: number, run: () => Promise<void>, failed: (error: unknown) => void): CancelableTask {
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

  async function cancel(): Promise<void> {
    clearInterval(timer)
    await running
  }

  return {
    async start() {
      timer = setInterval(() => void runOnce(), periodMs).unref()
    },
    async runNow() {
      await running
      await runOnce()
    },
    cancel,
    async stop() {
      await cancel()
      if (!hasFailed) await runOnce()
    },
  }
}
