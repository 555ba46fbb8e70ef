/** Everything that looks or sounds like chance in a preview comes from the prompt and the seed, so that the same request always gives the same bytes. */
import { createHash } from 'node:crypto'

export type Dice = {
  /** A number from `from` up to, but without, `to`. */
  between(from: number, to: number): number
  /** A whole number from `from` to `to`, both included. */
  whole(from: number, to: number): number
  pick<T>(list: readonly [T, ...T[]]): T
}

/** Dice that always fall the same way for the same text. The generator is xorshift128 (Marsaglia 2003), started from SHA-256. */
export function dice(text: string): Dice {
  const hash = createHash('sha256').update(text).digest()
  let [a, b, c, d] = [hash.readInt32LE(0), hash.readInt32LE(4), hash.readInt32LE(8), hash.readInt32LE(12) | 1]

  function next(): number {
    const t = a ^ (a << 11)
    ;[a, b, c] = [b, c, d]
    d = d ^ (d >>> 19) ^ t ^ (t >>> 8)
    return (d >>> 0) / 2 ** 32
  }

  return {
    between: (from, to) => from + next() * (to - from),
    whole: (from, to) => from + Math.floor(next() * (to - from + 1)),
    pick: (list) => list[Math.floor(next() * list.length)] ?? list[0],
  }
}
