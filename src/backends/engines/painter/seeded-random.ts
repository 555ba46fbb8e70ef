/** Everything that looks or sounds like chance in a preview comes from the prompt and the seed, so that the same request always gives the same bytes. */
import { createHash } from 'node:crypto'

export type Dice = {
  /** A number from `from` up to, but without, `to`. */
  between(from: number, to: number): number
  pick<T>(list: readonly [T, ...T[]]): T
}

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
export function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Dice that always fall the same way for the same text. */
export function dice(text: string): Dice {
  const next = randomOf(createHash('sha256').update(text).digest().readInt32LE())
  return {
    between: (from, to) => from + next() * (to - from),
    pick: (list) => list[Math.floor(next() * list.length)] ?? list[0],
  }
}
