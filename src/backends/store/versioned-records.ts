/** Records of subscriptions with versions, as an adapter of the store offers them to the group commit. */
import type { Subscription } from '../../domain/subscription/subscription.ts'
import type { UsageRecord } from '../../domain/usage-records.ts'

/** What an adapter implements. Both verbs throw `Unavailable` when the outcome is unknown, and have timeouts of their own: there is none here. */
export type VersionedRecords = {
  /** The current record. `unchanged` may be returned instead, which saves sending it, when its version is still `known`. */
  read(id: string, known?: number): Promise<Subscription | null | 'unchanged'>
  /** The current record, where nobody else writes and it is in memory. */
  known?(id: string): Subscription | undefined
  /**
   * Those of a stored record's usage records that must stay in its next version, because they may not be stored by themselves. None where `replace` stores them so in the
   * same write.
   */
  unstored(outbox: UsageRecord[]): UsageRecord[]
  /** Atomically replaces `before`, which the store has as long as it has its version, by `record`, whose usage records are then stored; null: there is none yet. */
  replace(record: Subscription, before: Subscription | null): Promise<'replaced' | 'conflict'>
}
