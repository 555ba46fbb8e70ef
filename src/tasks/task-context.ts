/** What the flows of a task stand on. */
import type { Store } from '../backends/store/store.ts'
import type { TaskResult } from '../domain/task.ts'

export type TaskContext = {
  store: Store
  /** Epoch milliseconds. */
  clock: () => number
  /** An id of a new task, or of a claim: a UUID v7, later than the one before. */
  uuid: () => string
  /** A number from 0 up to 1. */
  random: () => number
  /** Says that there is work of a kind; best effort, never throws. */
  publish: (verb: string, taskId: string) => void
  /** Hears of money that moved, in micro-units, once for each move: taken out of what is available, charged, given back. */
  moved: (move: 'hold' | 'capture' | 'void', tenant: string, micro: number) => void
  /** The signed address of a result. */
  link: (result: TaskResult) => string
  log: { info(facts: object, message: string): void; warn(facts: object, message: string): void; error(facts: object, message: string): void }
}

/** Longest that a task stays `pending` or `settling` before a sweep takes it up. */
export const PENDING_MS = 60_000
export const SETTLING_MS = 15_000
export const RELAY_MS = 5_000
