import { setTimeout as pause } from 'node:timers/promises'

const EVERY_MS = 20
const WITHIN_MS = 60_000
/** A look that took longer says nothing of what was looked at: the machine slept. */
const LONGEST_LOOK_MS = 1_000

/** Asks again and again until `look` gives something other than null, and returns that. Rejects, naming `what` was awaited, when that takes too long to be a matter of load. */
export async function eventually<T>(what: string, look: () => Promise<T | null>): Promise<T> {
  let at = performance.now()
  for (let waitedMs = 0; ; ) {
    const seen = await look()
    if (seen !== null) return seen
    if (waitedMs > WITHIN_MS) throw new Error(`waited in vain for ${what}`)
    await pause(EVERY_MS)
    const now = performance.now()
    waitedMs += Math.min(now - at, LONGEST_LOOK_MS)
    at = now
  }
}
