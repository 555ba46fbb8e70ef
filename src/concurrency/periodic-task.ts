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

const MOST_UNREPORTED = 512

/**
 * Calls `failed` with the first, second, fourth, eighth … equal error in a row, and with every 512th, so that what is tried every second does not fill a log
 * while a server is away. Returns what is to be called with each error, and with null after a success.
 */
export function rarely(failed: (error: unknown) => void): (error: unknown) => void {
  let count = 0
  let last = ''
  return (error) => {
    const kind = error === null ? '' : kindOf(error)
    count = error === null ? 0 : kind === last ? count + 1 : 1
    last = kind
    if (count > 0 && (Number.isInteger(Math.log2(count)) || count % MOST_UNREPORTED === 0)) failed(error)
  }
}

/** By what errors are equal: an `Unavailable` has the same message whatever its cause, and the texts of drivers have the numbers of connections. */
function kindOf(error: unknown): string {
  const { message, cause } = error as Error
  const { code, name } = (cause ?? {}) as { code?: unknown; name?: unknown }
  return `${message} ${String(code ?? name)}`
}

/** Runs `run` every `periodMs`, never twice at a time. Equal errors in a row go to `failed` ever more rarely. */
export function periodicTask(periodMs: number, run: () => Promise<void>, failed: (error: unknown) => void): CancelableTask {
  let timer: NodeJS.Timeout | undefined
  let running: Promise<void> | null = null
  let hasFailed = false
  const report = rarely(failed)

  function runOnce(): Promise<void> {
    const ended = (error: unknown = null) => {
      running = null
      hasFailed = error !== null
      report(error)
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
