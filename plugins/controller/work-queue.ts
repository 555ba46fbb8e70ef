/**
 * The controller's work queue: names only, so that whoever works on one reads the present. A name is worked on by one at a time; added meanwhile, it comes
 * again afterwards; added twice before, it comes once. Failures are tried again with exponential back-off of their own.
 */
export type Priority = 'urgent' | 'background'

export type QueueObserver = {
  added(): void
  /** Taken after waiting that long. */
  taken(waitedSeconds: number): void
  retried(): void
}

export type Queue = {
  /** Urgent ones are taken first; an urgent addition of what waits in the background moves it. */
  add(name: string, priority: Priority): void
  /** Adds the name after that long, in place of an earlier such order. */
  addAfter(name: string, ms: number): void
  /** The name need not be worked on any more: forgets that it waits. */
  drop(name: string): void
  /** Adds the name again after its back-off, and returns that in ms. */
  retry(name: string): number
  /** The next name; null once the queue is stopped. `done` must follow. */
  take(): Promise<string | null>
  /** The work on a name ended; `isGood` forgets its failures. */
  done(name: string, isGood: boolean): void
  depth(): number
  /** Nothing waits to be taken and nothing is worked on. */
  isIdle(): boolean
  /** No names are given out until `resume`; they are collected. */
  pause(): void
  resume(): void
  /** No more names are given out. */
  stop(): void
}

export type QueueOptions = {
  /** Runs `run` after `ms`; returns how to cancel it. */
  after: (ms: number, run: () => void) => () => void
  /** In [0, 1). */
  random: () => number
  observer: QueueObserver
}

const FIRST_RETRY_MS = 50
const LONGEST_RETRY_MS = 30_000
/** Timers cannot be set for months; who is woken early looks and sleeps on. */
const LONGEST_TIMER_MS = 3_600_000

export function openQueue({ after, random, observer }: QueueOptions): Queue {
  const waiting: Record<Priority, Map<string, number>> = { urgent: new Map(), background: new Map() }
  const working = new Set<string>()
  const again = new Map<string, Priority>()
  const failures = new Map<string, number>()
  const timers = new Map<string, () => void>()
  const takers: ((name: string | null) => void)[] = []
  let isStopped = false
  let isPaused = false

  function add(name: string, priority: Priority): void {
    if (isStopped) return
    if (working.has(name)) {
      if (again.get(name) !== 'urgent') again.set(name, priority)
      return
    }
    if (waiting.urgent.has(name) || (waiting.background.has(name) && priority === 'background')) return
    waiting.background.delete(name)
    waiting[priority].set(name, performance.now())
    observer.added()
    hand()
  }

  function hand(): void {
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
        working.add(name)
        observer.taken((performance.now() - since) / 1000)
        return name
      }
    }
    return null
  }

  function addAfter(name: string, ms: number): void {
    timers.get(name)?.()
    if (isStopped) return
    const cancel = after(Math.min(ms, LONGEST_TIMER_MS), () => {
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
      for (const names of [waiting.urgent, waiting.background, again, failures, timers]) names.delete(name)
    },
    retry(name) {
      const failed = failures.get(name) ?? 0
      failures.set(name, failed + 1)
      const ms = Math.min(FIRST_RETRY_MS * 2 ** failed, LONGEST_RETRY_MS) * (1 - random() / 4)
      observer.retried()
      addAfter(name, ms)
      return ms
    },
    take() {
      if (isStopped) return Promise.resolve(null)
      const name = next()
      return name === null ? new Promise((resolve) => takers.push(resolve)) : Promise.resolve(name)
    },
    done(name, isGood) {
      if (isGood) failures.delete(name)
      working.delete(name)
      const priority = again.get(name)
      again.delete(name)
      if (priority) add(name, priority)
    },
    depth: () => waiting.urgent.size + waiting.background.size,
    isIdle: () => waiting.urgent.size + waiting.background.size + working.size === 0,
    pause() {
      isPaused = true
    },
    resume() {
      isPaused = false
      hand()
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
