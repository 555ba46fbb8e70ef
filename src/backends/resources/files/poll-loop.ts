/**
 * Runs a look again and again, never two at once: when the folder's watch says something, and after the time that the last look asked for, in case it says
 * nothing.
 */
import { watch, type FSWatcher } from 'node:fs'

export type PollLoop = {
  /** One look now, after the one that may be under way. */
  now(): Promise<void>
  start(): void
  /** No look runs any more when this resolves. */
  stop(): Promise<void>
}

/** Time for a writer to finish after the watch said something. */
const SETTLE_MS = 30

/** `look` resolves to the ms until the next one and does not reject. */
export function openPollLoop(path: string, look: () => Promise<number>): PollLoop {
  let isRunning = false
  let isStopped = false
  let watcher: FSWatcher | null = null
  let timer: NodeJS.Timeout | null = null
  let dueAt = Infinity
  let queue = Promise.resolve(0)

  function run(): Promise<number> {
    queue = queue.then(look)
    return queue
  }

  function schedule(ms: number): void {
    const at = performance.now() + ms
    if (!isRunning || at >= dueAt) return
    if (timer) clearTimeout(timer)
    dueAt = at
    timer = setTimeout(() => {
      dueAt = Infinity
      timer = null
      arm()
      void run().then(schedule)
    }, ms)
  }

  /** A folder that is not there, or comes back, is watched once it is; until then polling finds it. */
  function arm(): void {
    if (watcher) return
    try {
      watcher = watch(path, () => schedule(SETTLE_MS))
      watcher.on('error', disarm)
    } catch {
      watcher = null
    }
  }

  function disarm(): void {
    watcher?.close()
    watcher = null
  }

  return {
    async now() {
      await run()
    },
    start() {
      // A start that was under way when it was stopped must not begin to watch again.
      if (isStopped) return
      isRunning = true
      arm()
      void queue.then(schedule)
    },
    async stop() {
      isStopped = true
      isRunning = false
      disarm()
      if (timer) clearTimeout(timer)
      timer = null
      await queue
    },
  }
}
