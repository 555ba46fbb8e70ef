/**
 * Poll loop over a folder: runs a sync on file system events and, for events that are missed, after the time that the last sync returned.
 * Never two at once.
 */
import { watch, type FSWatcher } from 'node:fs'

export type PollLoop = {
  /** Runs one sync now, after one that is in progress. */
  runNow(): Promise<void>
  start(): void
  /** Resolves when no sync runs any more. */
  stop(): Promise<void>
}

/** Time for a writer to finish after a file system event. */
const DEBOUNCE_MS = 30

/** `sync` resolves to the ms until the next one and does not reject. */
export function openPollLoop(path: string, sync: () => Promise<number>): PollLoop {
  let isRunning = false
  let isStopped = false
  let watcher: FSWatcher | null = null
  let timer: NodeJS.Timeout | null = null
  let dueAt = Infinity
  let queue = Promise.resolve(0)

  function run(): Promise<number> {
    queue = queue.then(sync)
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
      startWatcher()
      void run().then(schedule)
    }, ms)
  }

  /** A missing folder cannot be watched; polling finds it and each timer tries again. */
  function startWatcher(): void {
    if (watcher) return
    try {
      watcher = watch(path, () => schedule(DEBOUNCE_MS))
      watcher.on('error', stopWatcher)
    } catch {
      watcher = null
    }
  }

  function stopWatcher(): void {
    watcher?.close()
    watcher = null
  }

  return {
    async runNow() {
      await run()
    },
    start() {
      // A start in progress during `stop` must not start the watcher again.
      if (isStopped) return
      isRunning = true
      startWatcher()
      void queue.then(schedule)
    },
    async stop() {
      isStopped = true
      isRunning = false
      stopWatcher()
      if (timer) clearTimeout(timer)
      timer = null
      await queue
    },
  }
}
