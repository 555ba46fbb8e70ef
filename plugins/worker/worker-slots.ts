/** Worker slots: concurrent runs of this process, in total and per kind. */
import { Cut } from './task-run.ts'

export type Slots = {
  isFull(): boolean
  /** Kinds of which one more may run here. */
  claimable(): string[]
  /** How many more runs may start now, of any of those kinds. */
  room(): number
  /** Occupies a slot until the run has ended; resolves when it is free again. `run` must not reject. */
  take(verb: string, run: (cut: AbortController) => Promise<void>, freed: () => void): void
  /** Aborts all runs. */
  cutAll(): void
  /** Resolves when no run is in progress. */
  empty(): Promise<void>
}

/** `mostOf`: concurrent runs of a kind in this process; null: no limit but the slots. */
export function openSlots(most: number, verbs: readonly string[], mostOf: (verb: string) => number | null): Slots {
  const running = new Map<Promise<void>, { verb: string; cut: AbortController }>()
  const roomOf = (verb: string) => (mostOf(verb) ?? Infinity) - [...running.values()].filter((run) => run.verb === verb).length
  const claimable = () => verbs.filter((verb) => roomOf(verb) > 0)
  return {
    isFull: () => running.size >= most,
    claimable,
    room: () => Math.min(most - running.size, ...claimable().map(roomOf)),
    take(verb, run, freed) {
      const cut = new AbortController()
      const ended = run(cut).finally(() => {
        running.delete(ended)
        freed()
      })
      running.set(ended, { verb, cut })
    },
    cutAll() {
      for (const { cut } of running.values()) cut.abort(new Cut('stopping'))
    },
    async empty() {
      await Promise.allSettled(running.keys())
    },
  }
}
