import { setTimeout as pause } from 'node:timers/promises'

const EVERY_MS = { first: 20, most: 250 }
/** So a wait takes a twentieth longer at the most, and a long one costs few polls. */
const SHARE = 1 / 20
const WITHIN_MS = 60_000
/** A poll that took longer does not count: the machine was suspended. */
const LONGEST_LOOK_MS = 1_000

/**
 * Polls until `look` returns something other than null, and returns that. Rejects, naming `what`, when it takes too long to be caused by load; `withinMs` is for what waits
 * for a limit of the program.
 */
export async function eventually<T>(what: string, look: () => Promise<T | null>, withinMs = WITHIN_MS): Promise<T> {
  let at = performance.now()
  for (let waitedMs = 0; ; ) {
    const seen = await look()
    if (seen !== null) return seen
    if (waitedMs > withinMs) throw new Error(`timed out waiting for ${what}`)
    await pause(Math.min(EVERY_MS.most, Math.max(EVERY_MS.first, waitedMs * SHARE)))
    const now = performance.now()
    waitedMs += Math.min(now - at, LONGEST_LOOK_MS)
    at = now
  }
}
