/** Deadlines that are moved far more often than they pass, such as those of silent streams: all share one timer, and moving one is an assignment. */

import { removeEntry } from '../domain/long-lived-maps.ts'

export type Deadline = {
  /** Passes in so many milliseconds, unless it is moved or cleared before; starts a deadline that is cleared or has passed. */
  move(ms: number): void
  /** Idempotent. */
  clear(): void
}

/** `passed` is null once it is cleared: a former table of the set (`long-lived-maps.ts`) must not lead to the request that it watched. */
type Entry = { at: number; passed: (() => void) | null }

let pending = new Set<Entry>()
let timer: NodeJS.Timeout | null = null
/** When the timer fires, by `performance.now()`. */
let wakesAt = Number.POSITIVE_INFINITY

/** Opens a deadline, which `move` starts. Keeps no process alive: what it watches does. */
export function openDeadline(passed: () => void): Deadline {
  const entry: Entry = { at: 0, passed: null }
  return {
    move(ms) {
      entry.at = performance.now() + ms
      entry.passed = passed
      pending.add(entry)
      if (entry.at < wakesAt) wakeAt(entry.at)
    },
    clear() {
      pending = removeEntry(pending, entry)
      entry.passed = null
    },
  }
}

function wakeAt(at: number): void {
  if (timer) clearTimeout(timer)
  wakesAt = at
  timer = setTimeout(sweep, Math.max(1, Math.ceil(at - performance.now()))).unref()
}

/** Runs what has passed, and sleeps until the next deadline as it stands now. */
function sweep(): void {
  timer = null
  wakesAt = Number.POSITIVE_INFINITY
  const now = performance.now()
  const due: Entry[] = []
  let next = Number.POSITIVE_INFINITY
  for (const entry of pending) {
    if (entry.at <= now) due.push(entry)
    else next = Math.min(next, entry.at)
  }
  if (next < Number.POSITIVE_INFINITY) wakeAt(next)
  // An earlier one may clear or move a later one.
  for (const entry of due.sort((a, b) => a.at - b.at)) if (entry.at <= now && pending.delete(entry)) entry.passed?.()
}
