/** The slots of a worker: what runs in them, and what may run beside it. */
import { Cut } from './task-run.ts'

export type Slots = {
  isFull(): boolean
  /** The verbs of which one more may run here. */
  claimable(): string[]
  /** How many runs may begin now, whichever of those verbs they are of. */
  room(): number
  /** Takes a slot until the run has ended, and says when it is free again. `run` must not reject. */
  take(verb: string, run: (cut: AbortController) => Promise<void>, freed: () => void): void
  /** Cuts off everything that runs. */
  cutAll(): void
  /** Resolves when nothing runs. */
  empty(): Promise<void>
}

/** `mostOf` tells how many of a verb may run at once in this process; null: as many as there are slots. */
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
