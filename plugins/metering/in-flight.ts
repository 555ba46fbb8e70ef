/** The reservations of this process that are not settled yet. */

import { removeEntry } from '../../src/domain/long-lived-maps.ts'

export type InFlight = {
  add(id: string): void
  has(id: string): boolean
  remove(id: string): void
  /** Resolves once there is none (true), or after `patienceMs` (false). */
  drained(patienceMs: number): Promise<boolean>
}

export function openInFlight(): InFlight {
  let ids = new Set<string>()
  let emptied: () => void = () => {}
  return {
    add: (id) => void ids.add(id),
    has: (id) => ids.has(id),
    remove(id) {
      ids = removeEntry(ids, id)
      if (ids.size === 0) emptied()
    },
    drained: (patienceMs) =>
      new Promise((resolve) => {
        emptied = () => resolve(true)
        if (ids.size === 0) emptied()
        else setTimeout(() => resolve(ids.size === 0), patienceMs).unref()
      }),
  }
}
