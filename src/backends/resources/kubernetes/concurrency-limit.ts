/** At most so many at once; the others wait in the order in which they came. */
export type ConcurrencyLimit = <T>(work: () => Promise<T>) => Promise<T>

export function openConcurrencyLimit(most: number): ConcurrencyLimit {
  const waiting: (() => void)[] = []
  let inside = 0
  return async (work) => {
    if (inside >= most) await new Promise<void>((enter) => waiting.push(enter))
    else inside++
    try {
      return await work()
    } finally {
      // The place goes over to the next one.
      const enter = waiting.shift()
      if (enter) enter()
      else inside--
    }
  }
}
