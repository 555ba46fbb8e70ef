/** The time of the server, by which resets, expiries and ages are shown: a browser's clock may be wrong. */
import { signal } from '@preact/signals'

/** A difference below this is the way of the answer. */
const TOLERATED_MS = 30_000

let aheadMs = 0

/** Epoch milliseconds. */
export const serverTime = (): number => Date.now() + aheadMs

/** The time of the server, by the second. */
export const now = signal(Date.now())
setInterval(() => (now.value = serverTime()), 1000)

/** Sets the clock by the `Date` of an answer that has just come. */
export function setClock(date: string | null): void {
  const ms = Date.parse(date ?? '') - Date.now()
  if (!Number.isFinite(ms)) return
  aheadMs = Math.abs(ms) < TOLERATED_MS ? 0 : ms
}
