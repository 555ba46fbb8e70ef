/** Concurrency limit (semaphore): at most `max` calls run at once, the others wait in order of arrival. */
export type ConcurrencyLimit = <T>(work: () => Promise<T>) => Promise<T>

export function openConcurrencyLimit(max: number): ConcurrencyLimit {
  const waiting: (() => void)[] = []
  let running = 0
  return async (work) => {
    if (running >= max) await new Promise<void>((proceed) => waiting.push(proceed))
    else running++
    try {
      return await work()
    } finally {
      // The slot passes to the next waiting call.
      const proceed = waiting.shift()
      if (proceed) proceed()
      else running--
    }
  }
}
