/** Time that a test moves: a clock that stands still in between, and timers. */
export type MovedTime = {
  clock: () => number
  /**
   * Runs `run` once the clock has come so far, and also once so much time has really passed, since what is tried again after a failure is not waited for by the test: who is
   * woken early looks and sleeps on.
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
