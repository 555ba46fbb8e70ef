/** Worker slots: concurrent runs of this process, in total and per kind. */
import { openCounts } from '../../src/domain/counts-by-name.ts'
import { Cut } from './task-run.ts'

export type Slots = {
  /** Concurrent runs at most, and at present. */
  most: number
  busy(): number
  isFull(): boolean
  /** Whether one more of this kind may run here, apart from `isFull`. */
  hasRoom(kind: string): boolean
  /** Kinds of which one more may run here. */
  claimable(): string[]
  /** How many more runs may start now, of any of those kinds. */
  room(): number
  /** Occupies a slot until the run has ended; resolves when it is free again. `run` must not reject. */
  take(kind: string, run: (cut: AbortController) => Promise<void>, freed: () => void): void
  /** Aborts all runs. */
  cutAll(): void
  /** Resolves when no run is in progress. */
  empty(): Promise<void>
}

/** `mostOf`: concurrent runs of a kind in this process; null: no limit but the slots. */
export function openSlots(most: number, kinds: readonly string[], mostOf: (kind: string) => number | null): Slots {
  const running = new Map<Promise<void>, AbortController>()
  const counts = openCounts()
  const roomOf = (kind: string) => (mostOf(kind) ?? Infinity) - counts.of(kind)
  const hasRoom = (kind: string) => kinds.includes(kind) && roomOf(kind) > 0
  const claimable = () => kinds.filter(hasRoom)
  return {
    most,
    busy: () => running.size,
    isFull: () => running.size >= most,
    hasRoom,
    claimable,
    room: () => Math.min(most - running.size, ...claimable().map(roomOf)),
    take(kind, run, freed) {
      const cut = new AbortController()
      const ended = run(cut).finally(() => {
        running.delete(ended)
        counts.add(kind, -1)
        freed()
      })
      running.set(ended, cut)
      counts.add(kind, 1)
    },
    cutAll() {
      for (const cut of running.values()) cut.abort(new Cut('stopping'))
    },
    async empty() {
      await Promise.allSettled(running.keys())
    },
  }
}
