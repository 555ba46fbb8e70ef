import type { Test } from 'tap'

export type Steps = {
  /** Runs a step, and prints its time. */
  step<T>(name: string, work: () => Promise<T>): Promise<T>
  /** Prints the time since the start, in minutes. */
  end(): void
}

/** The steps of a drill with their times, as comments of the test. */
export function openSteps(t: Test): Steps {
  const since = performance.now()
  return {
    async step(name, work) {
      const from = performance.now()
      const result = await work()
      t.comment(`${name}: ${((performance.now() - from) / 1000).toFixed(1)} s`)
      return result
    },
    end: () => void t.comment(`the whole drill: ${((performance.now() - since) / 60_000).toFixed(1)} minutes`),
  }
}
