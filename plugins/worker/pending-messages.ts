/** Messages that a worker has received and for which no claim was decided yet. Their offsets are not committed meanwhile. */
import { openCounts } from '../../src/domain/counts-by-name.ts'
import type { TaskReady } from '../../src/domain/broker-messages.ts'

export type PendingMessage = { message: TaskReady; decide(): void }

export type PendingMessages = {
  /** Resolves once a claim was decided: it started a task, or there was none. */
  add(message: TaskReady): Promise<void>
  count(kind: string): number
  /** By subscription, of these kinds, in the order in which they were received. */
  bySubscription(kinds: readonly string[]): Map<string, PendingMessage[]>
  /** Idempotent. */
  decide(messages: Iterable<PendingMessage>): void
}

export function openPendingMessages(): PendingMessages {
  const pending = new Set<PendingMessage>()
  const counts = openCounts()
  return {
    add: (message) =>
      new Promise((resolve) => {
        pending.add({ message, decide: resolve })
        counts.add(message.kind, 1)
      }),
    count: counts.of,
    bySubscription: (kinds) =>
      Map.groupBy(
        [...pending].filter(({ message }) => kinds.includes(message.kind)),
        ({ message }) => message.subscription,
      ),
    decide(messages) {
      for (const one of messages) {
        if (!pending.delete(one)) continue
        counts.add(one.message.kind, -1)
        one.decide()
      }
    },
  }
}
