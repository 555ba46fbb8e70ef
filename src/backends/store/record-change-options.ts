/** Options of changes of records by compare-and-set (`group-commit.ts`). */
import type { VersionedRecords } from './versioned-records.ts'

/** Why a change is retried: another process wrote first, or the outcome of a read or a write is unknown. */
export type Retry = 'conflict' | 'unavailable'

export type ChangeOptions = {
  /** Called at every retry, for a metric. */
  retried?: (reason: Retry) => void
  /**
   * The store's time now, epoch milliseconds; null while it is unknown; throws `Unavailable` while nothing may be written. A record whose
   * time lies ahead of it is healed by the next command.
   */
  storeTime?: () => number | null
  /** Called after a record was healed. */
  healed?: (id: string, aheadMs: number) => void
  /** Called with the reason when writes of records begin to fail, and with null when one succeeds again. */
  failing?: (reason: unknown) => void
  /** Nobody else writes the records, so that those in memory are the current ones. */
  isSole?: boolean
  /** A usage record is made with each charge. */
  recordsUsage?: boolean
  /** Takes leases on the records of coding plans, where others write them too. */
  leases?: boolean
  /** How long a change is retried before it throws `Unavailable`, or `Busy` after a conflict. */
  retryForMs?: number
  /** Monotonic milliseconds, for `retryForMs` alone. */
  clock?: () => number
  /** Waits between two attempts, milliseconds. */
  pause?: (ms: number) => Promise<unknown>
  /** Wraps the adapter: the simulation injects faults here. */
  wrap?: (records: VersionedRecords) => VersionedRecords
}
