/** Everything that looks or sounds like chance in a preview comes from the prompt and the seed, so that the same request always gives the same bytes. */
import { createHash } from 'node:crypto'

export type Dice = {
  /** A number from `from` up to, but without, `to`. */
  between(from: number, to: number): number
  pick<T>(list: readonly [T, ...T[]]): T
}

/** Dice that always fall the same way for the same text. The generator is mulberry32, started from SHA-256. */
export function dice(text: string): Dice {
  let state = createHash('sha256').update(text).digest().readInt32LE()

  function next(): number {
    state = (state + 0x6d2b79f5) | 0
    const mixed = Math.imul(state ^ (state >>> 15), state | 1)
    const more = mixed ^ (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61))
    return ((more ^ (more >>> 14)) >>> 0) / 2 ** 32
  }

  return {
    between: (from, to) => from + next() * (to - from),
    pick: (list) => list[Math.floor(next() * list.length)] ?? list[0],
  }
}
