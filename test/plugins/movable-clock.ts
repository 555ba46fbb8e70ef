/** Fake clock and timers that a test advances. */
export type MovedTime = {
  clock: () => number
  /**
   * Runs `run` once the clock has advanced by this much, and also once that much real time has passed, since tests do not advance the clock for retries after failures: a sleeper that
   * wakes early checks the clock and sleeps again.
   */
  after: (ms: number, run: () => void) => () => void
  pass(ms: number): void
}

export function openTime(startMs = Date.now()): MovedTime {
  let nowMs = startMs
  const timers = new Set<{ at: number; fire: () => void }>()
  return {
    clock: () => nowMs,
    after(ms, run) {
      const timer = { at: nowMs + ms, fire }
      const real = setTimeout(fire, ms)
      function fire(): void {
        cancel()
        run()
      }
      function cancel(): void {
        timers.delete(timer)
        clearTimeout(real)
      }
      timers.add(timer)
      return cancel
    },
    pass(ms) {
      nowMs += ms
      const due = [...timers].filter(({ at }) => at <= nowMs)
      for (const { fire } of due) fire()
    },
  }
}
