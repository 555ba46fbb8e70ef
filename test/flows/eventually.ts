import { setTimeout as pause } from 'node:timers/promises'

const EVERY_MS = 20
const WITHIN_MS = 60_000
/** A poll that took longer does not count: the machine was suspended. */
const LONGEST_LOOK_MS = 1_000

/** Polls until `look` returns something other than null, and returns that. Rejects, naming `what`, when it takes too long to be caused by load. */
export async function eventually<T>(what: string, look: () => Promise<T | null>): Promise<T> {
  let at = performance.now()
  for (let waitedMs = 0; ; ) {
    const seen = await look()
    if (seen !== null) return seen
    if (waitedMs > WITHIN_MS) throw new Error(`timed out waiting for ${what}`)
    await pause(EVERY_MS)
    const now = performance.now()
    waitedMs += Math.min(now - at, LONGEST_LOOK_MS)
    at = now
  }
}
