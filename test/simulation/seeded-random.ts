/** Everything that is random in a simulation comes from one of these, so that a seed makes the same world again. */
export type Dice = {
  /** From 0 up to 1. */
  random(): number
  /** A whole number, both ends included. */
  whole(from: number, to: number): number
  chance(probability: number): boolean
  pick<T>(list: readonly T[]): T
  /** One of the names, as often as its weight says. */
  weighted<K extends string>(weights: Record<K, number>): K
}

/** The same throws for the same seed (Marsaglia's xorshift32, its first state mixed by Knuth's multiplicative hash). */
export function diceOf(seed: number): Dice {
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
