import { setTimeout as pause } from 'node:timers/promises'

const FIRST_MS = 250
const LONGEST_MS = 3000

/** Pauses between attempts, each twice as long as the one before, until `begin` is called. They end early, and without an error, when `signal` is aborted. */
export function openPauses(signal: AbortSignal): { next(): Promise<void>; begin(): void } {
  let nextMs = FIRST_MS
  return {
    async next() {
      const ms = nextMs
      nextMs = Math.min(ms * 2, LONGEST_MS)
      await pause(ms, undefined, { signal }).catch(() => {})
    },
    begin() {
      nextMs = FIRST_MS
    },
  }
}
