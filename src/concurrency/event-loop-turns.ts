/** Turns of the event loop for work that is done in slices: each turn goes to one caller, in order, however many have work. */
import { setImmediate as immediate } from 'node:timers/promises'

/** Returns a function that resolves with the caller's turn. */
export function openTurns(): () => Promise<void> {
  let last: Promise<void> = Promise.resolve()
  return () => (last = last.then(() => immediate()))
}
