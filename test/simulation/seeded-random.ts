/** Seeded random number generator: the only source of randomness of a simulation, so that seeds are reproducible. */
export type Rng = {
  /** From 0 to 1, exclusive. */
  random(): number
  /** A whole number; both ends are inclusive. */
  whole(from: number, to: number): number
  chance(probability: number): boolean
  pick<T>(list: readonly T[]): T
  /** One of the names, with a probability proportional to its weight. */
  weighted<K extends string>(weights: Record<K, number>): K
}

/** The same numbers for the same seed (Marsaglia's xorshift32, its first state mixed by Knuth's multiplicative hash). */
export function rngOf(seed: number): Rng {
  let state = (Math.imul(seed + 1, 0x9e3779b1) ^ 0x5bf03635) | 1
  const random = () => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) / 2 ** 32
  }
  for (let i = 0; i < 8; i++) random()
  const pick = <T>(list: readonly T[]): T => {
    const found = list[Math.floor(random() * list.length)]
    if (found === undefined) throw new RangeError('nothing to pick from')
    return found
  }
  return {
    random,
    whole: (from, to) => from + Math.floor(random() * (to - from + 1)),
    chance: (probability) => random() < probability,
    pick,
    weighted: <K extends string>(weights: Record<K, number>): K => {
      const entries = Object.entries(weights) as [K, number][]
      let left = random() * entries.reduce((sum, [, weight]) => sum + weight, 0)
      return (entries.find(([, weight]) => (left -= weight) < 0) ?? entries[0]!)[0]
    },
  }
}
