import { setTimeout as pause } from 'node:timers/promises'

const EVERY_MS = 20
const WITHIN_MS = 15_000

/** Asks again and again until `look` gives something other than null, and returns that. Rejects, naming `what` was awaited, when that takes too long to be a matter of load. */
export async function eventually<T>(what: string, look: () => Promise<T | null>): Promise<T> {
  const deadline = performance.now() + WITHIN_MS
  for (;;) {
    const seen = await look()
    if (seen !== null) return seen
    if (performance.now() > deadline) throw new Error(`waited in vain for ${what}`)
    await pause(EVERY_MS)
  }
}
