/** Virtual time: sleeps end in the order of their times as fast as the work between them takes. */

export type VirtualTime = {
  now(): number
  sleep(ms: number): Promise<void>
  /** Lets time pass until the work has ended. */
  run<T>(work: Promise<T>): Promise<T>
  /** Lets time pass until the condition holds, or nothing sleeps. */
  runUntil(holds: () => boolean): Promise<void>
}

/** `startMs`: epoch milliseconds. */
export function openVirtualTime(startMs: number): VirtualTime {
  let nowMs = startMs
  const sleeping = new Map<number, (() => void)[]>()
  /** The times in `sleeping`, a binary heap. */
  const times: number[] = []

  function push(at: number): void {
    let n = times.push(at) - 1
    for (let up = (n - 1) >> 1; n > 0 && (times[up] as number) > at; n = up, up = (n - 1) >> 1) times[n] = times[up] as number
    times[n] = at
  }

  function pop(): number | undefined {
    const first = times[0]
    const last = times.pop()
    if (times.length === 0 || last === undefined) return first
    let n = 0
    for (;;) {
      let down = 2 * n + 1
      if (down + 1 < times.length && (times[down + 1] as number) < (times[down] as number)) down++
      if (down >= times.length || (times[down] as number) >= last) break
      times[n] = times[down] as number
      n = down
    }
    times[n] = last
    return first
  }

  async function runUntil(holds: () => boolean): Promise<void> {
    // The work between two sleeps is done after a turn of the event loop.
    await new Promise(setImmediate)
    while (!holds()) {
      const at = pop()
      if (at === undefined) return
      nowMs = at
      const woken = sleeping.get(at) ?? []
      sleeping.delete(at)
      for (const wake of woken) wake()
      await new Promise(setImmediate)
    }
  }

  return {
    now: () => nowMs,
    sleep: (ms) =>
      new Promise((resolve) => {
        const at = nowMs + Math.max(0, ms)
        const others = sleeping.get(at)
        if (others) return void others.push(resolve)
        sleeping.set(at, [resolve])
        push(at)
      }),
    async run(work) {
      let isDone = false
      void work.finally(() => (isDone = true)).catch(() => {})
      await runUntil(() => isDone)
      return work
    },
    runUntil,
  }
}
