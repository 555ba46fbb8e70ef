/** The backends and services that the flows of a task use. */
import type { Files } from '../backends/files/files.ts'
import type { Store } from '../backends/store/store.ts'
import type { Message } from '../domain/broker-messages.ts'
import type { TaskResult } from '../domain/task.ts'

export type TaskContext = {
  store: Store
  files: Files
  /** Epoch milliseconds. */
  clock: () => number
  /** An id of a new task, or of a claim: a UUID v7, later than the one before. */
  uuid: () => string
  /** A number from 0 up to 1. */
  random: () => number
  /** Sends a message to workers or dispatchers; best effort, never throws. */
  publish: (message: Message) => void
  /** Counts money in micro-units, once for each move: held, charged, or given back. */
  moved: (move: 'hold' | 'capture' | 'void', tenant: string, micro: number) => void
  /** The signed address of a result, or of an upload. */
  link: (file: Pick<TaskResult, 'file' | 'expiresAt'>) => string
  /** The id in the files backend of an address that `link` made, expired or not; null for any other address. */
  linkedFile: (url: string) => string | null
  /** How long results, and sources that were uploaded with their request, are kept. */
  resultMs: number
  log: {
    info(facts: object, message: string): void
    warn(facts: object, message: string): void
    error(facts: object, message: string): void
  }
}

/** Longest that a task stays `pending` or `settling` before a sweep handles it. */
export const PENDING_MS = 60_000
/** How often the sweep examines a queued task. */
export const QUEUED_MS = 15 * 60_000
export const SETTLING_MS = 15_000
