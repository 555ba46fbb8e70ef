/** How a reservation grows with an answer that needs more than was reserved for it: it doubles, so that a long answer extends it a few times only. */
import type { OpenReservation } from '../../src/upstream/usage/reservation.ts'

export type Growth = Pick<OpenReservation, 'ensure' | 'cover'> & {
  /** Tokens, as the store has them. */
  reserved(): number
  /** The admission is stored, with so many. */
  stored(tokens: number): void
}

/** After a failed extension the next one is tried after this many further tokens. */
const RETRY_TOKENS = 1000

/** `extend` changes the reservation in the store, and returns what it is afterwards; `gone` when it was settled meanwhile. `failed` is told why an extension failed that nobody awaits. */
export function openGrowth(
  admitted: number,
  extend: (tokens: number) => Promise<number | 'gone'>,
  failed: (error: unknown) => void,
): Growth {
  let reserved = admitted
  /** What is covered, or will be tried again. */
  let covered = admitted

  async function ensure(tokens: number): Promise<'extended' | 'gone'> {
    if (tokens <= reserved) return 'extended'
    const extended = await extend(Math.max(tokens, reserved * 2))
    if (extended === 'gone') return 'gone'
    reserved = covered = extended
    return 'extended'
  }

  async function grow(tokens: number, gone: () => void): Promise<void> {
    // One extension at a time.
    covered = Number.POSITIVE_INFINITY
    try {
      if ((await ensure(tokens)) === 'gone') gone()
    } catch (error) {
      // The answer continues, and the extension is tried again with further output.
      failed(error)
      covered = tokens + RETRY_TOKENS
    }
  }

  return {
    reserved: () => reserved,
    stored(tokens) {
      reserved = tokens
      // Unless an extension waits for this.
      if (covered === admitted) covered = tokens
    },
    ensure,
    cover(tokens, gone) {
      if (tokens > covered) void grow(tokens, gone)
    },
  }
}
