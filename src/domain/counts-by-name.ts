/** Counts by name, such as the open requests of each API key. A name at zero takes no memory. */
export type Counts = {
  of(name: string): number
  add(name: string, change: number): void
}

export function openCounts(): Counts {
  const counts = new Map<string, number>()
  const of = (name: string) => counts.get(name) ?? 0
  return {
    of,
    add(name, change) {
      const now = of(name) + change
      if (now > 0) counts.set(name, now)
      else counts.delete(name)
    },
  }
}
