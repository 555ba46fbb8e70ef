/**
 * Rate-limited work queue of the controller, de-duplicated by name. It holds names only, so a worker always reads the present state. One worker at a time has a
 * name; a name added meanwhile is queued again afterwards. Each name has its own exponential back-off after failures.
 */
export type Priority = 'urgent' | 'background'

export type QueueObserver = {
  added(): void
  taken(waitedSeconds: number): void
  retried(): void
}

export type Queue = {
  /** Urgent names are taken first; adding a background name as urgent moves it. */
  add(name: string, priority: Priority): void
  /** Adds the name after `ms`, in place of an earlier `addAfter` or `retry` of it. */
  addAfter(name: string, ms: number): void
  /** Removes the name and its timer, failures and priority. */
  drop(name: string): void
  /** Adds the name again after its back-off, and returns that in ms. */
  retry(name: string): number
  /** The next name; null once the queue is stopped. `done` must follow. */
  take(): Promise<string | null>
  /** Ends the work on a name; `isSuccess` resets its back-off. */
  done(name: string, isSuccess: boolean): void
  depth(): number
  /** True while the queue is empty and no name is worked on. */
  isIdle(): boolean
  /** `take` waits until `resume`; names are still added. */
  pause(): void
  resume(): void
  /** Empties the queue; `take` returns null from now on. */
  stop(): void
}

export type QueueOptions = {
  /** Runs `run` after `ms`; returns how to cancel it. */
  after: (ms: number, run: () => void) => () => void
  /** In [0, 1). */
  random: () => number
  observer: QueueObserver
}

const INITIAL_RETRY_MS = 50
const MAX_RETRY_MS = 30_000
/** A timer has an upper limit of 24.8 days. A name that comes early is reconciled and requeued. */
const MAX_TIMER_MS = 3_600_000

export function openQueue({ after, random, observer }: QueueOptions): Queue {
  const waiting: Record<Priority, Map<string, number>> = { urgent: new Map(), background: new Map() }
  const processing = new Set<string>()
  /** Names that were added while they were processed. */
  const dirty = new Map<string, Priority>()
  const failures = new Map<string, number>()
  const timers = new Map<string, () => void>()
  const takers: ((name: string | null) => void)[] = []
  let isStopped = false
  let isPaused = false

  function add(name: string, priority: Priority): void {
    if (isStopped) return
    if (processing.has(name)) {
      if (dirty.get(name) !== 'urgent') dirty.set(name, priority)
      return
    }
    if (waiting.urgent.has(name) || (waiting.background.has(name) && priority === 'background')) return
    waiting.background.delete(name)
    waiting[priority].set(name, performance.now())
    observer.added()
    dispatch()
  }

  function dispatch(): void {
    while (takers.length > 0) {
      const name = next()
      if (name === null) return
      takers.shift()?.(name)
    }
  }

  function next(): string | null {
    if (isPaused) return null
    for (const names of [waiting.urgent, waiting.background]) {
      for (const [name, since] of names) {
        names.delete(name)
        processing.add(name)
        observer.taken((performance.now() - since) / 1000)
        return name
      }
    }
    return null
  }

  function addAfter(name: string, ms: number): void {
    timers.get(name)?.()
    if (isStopped) return
    const cancel = after(Math.min(ms, MAX_TIMER_MS), () => {
      timers.delete(name)
      add(name, 'urgent')
    })
    timers.set(name, cancel)
  }

  return {
    add,
    addAfter,
    drop(name) {
      timers.get(name)?.()
      for (const names of [waiting.urgent, waiting.background, dirty, failures, timers]) names.delete(name)
    },
    retry(name) {
      const failed = failures.get(name) ?? 0
      failures.set(name, failed + 1)
      const ms = Math.min(INITIAL_RETRY_MS * 2 ** failed, MAX_RETRY_MS) * (1 - random() / 4)
      observer.retried()
      addAfter(name, ms)
      return ms
    },
    take() {
      if (isStopped) return Promise.resolve(null)
      const name = next()
      return name === null ? new Promise((resolve) => takers.push(resolve)) : Promise.resolve(name)
    },
    done(name, isSuccess) {
      if (isSuccess) failures.delete(name)
      processing.delete(name)
      const priority = dirty.get(name)
      dirty.delete(name)
      if (priority) add(name, priority)
    },
    depth: () => waiting.urgent.size + waiting.background.size,
    isIdle: () => waiting.urgent.size + waiting.background.size + processing.size === 0,
    pause() {
      isPaused = true
    },
    resume() {
      isPaused = false
      dispatch()
    },
    stop() {
      isStopped = true
      for (const cancel of timers.values()) cancel()
      timers.clear()
      for (const names of Object.values(waiting)) names.clear()
      for (const taker of takers.splice(0)) taker(null)
    },
  }
}
