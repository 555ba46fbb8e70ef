/** Exponential backoff between attempts. */
import { setTimeout as pause } from 'node:timers/promises'

const MIN_MS = 250
const MAX_MS = 3000

/** Each pause is twice as long as the one before, until `reset`. A pause ends early, and without an error, when `signal` is aborted. */
export function openBackoff(signal: AbortSignal): { next(): Promise<void>; reset(): void } {
  let nextMs = MIN_MS
  return {
    async next() {
      const ms = nextMs
      nextMs = Math.min(ms * 2, MAX_MS)
      await pause(ms, undefined, { signal }).catch(() => {})
    },
    reset() {
      nextMs = MIN_MS
    },
  }
}
