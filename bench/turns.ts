/** How long the event loop of this thread stands still, by processor time: a clock would measure the load of the machine. */

/** Returns the longest processor time, in milliseconds, between two turns of the event loop since the last call. `stop` ends the watch. */
export function watchTurns(): { longest(): number; stop(): void } {
  let [longest, last, isOver] = [0, threadUs(), false]
  const turn = () => {
    const now = threadUs()
    longest = Math.max(longest, now - last)
    last = now
    if (!isOver) setImmediate(turn)
  }
  setImmediate(turn)
  return {
    longest() {
      const ms = longest / 1000
      longest = 0
      return ms
    },
    stop: () => void (isOver = true),
  }
}

/** Processor time of this thread. */
export function threadUs(): number {
  const { user, system } = process.threadCpuUsage()
  return user + system
}
