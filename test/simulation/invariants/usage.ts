/** Invariant of usage records: after the recovery each charge has one, and they add up to what was charged. */
import type { Store } from '../../../src/backends/store/store.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import type { Task } from '../../../src/domain/task.ts'
import { isCodingUsage, type UsageRecord } from '../../../src/domain/usage-records.ts'
import type { Report, Seen } from '../invariant-checker.ts'

export function openUsageChecks(store: Store, seen: Seen, report: Report) {
  async function checkFinal(requests: ReadonlyMap<string, { open: boolean }>): Promise<void> {
    for (const record of seen.records.values()) {
      const found = await store.usageRecords(record.id, { since: 0, until: Infinity }, null, 10_000)
      const byId = new Map(found.map((one) => [one.id, one]))
      if (byId.size < found.length) report(`${record.id} has ${found.length} usage records with ${byId.size} ids`)
      if (record.coding) checkRequests(record, record.coding.usage, byId, requests)
      if (record.media) checkTasks(record, byId)
    }
  }

  function checkRequests({ id }: Subscription, days: NonNullable<Subscription['coding']>['usage'], byId: Map<string, UsageRecord>, requests: ReadonlyMap<string, { open: boolean }>): void {
    const records = [...byId.values()].filter(isCodingUsage)
    for (const one of records) if (requests.get(one.id)?.open !== false) report(`${id} has a usage record of request ${one.id}, which was not settled`)
    const [count, tokens] = [records.length, records.reduce((sum, { charged }) => sum + charged, 0)]
    const books = Object.values(days).reduce((sum, day) => ({ requests: sum.requests + day.requests, charged: sum.charged + day.charged }), { requests: 0, charged: 0 })
    if (count !== books.requests || tokens !== books.charged) report(`${id} has ${count} usage records of ${tokens} tokens, and charged ${books.requests} requests ${books.charged}`)
  }

  function checkTasks({ id }: Subscription, byId: Map<string, UsageRecord>): void {
    for (const task of seen.tasks.values()) {
      if (task.subscription !== id) continue
      const one = byId.get(task.id)
      const [wanted, cost] = [captureOf(task), one && !isCodingUsage(one) ? one.cost : null]
      if (cost !== wanted) report(`task ${task.id} is ${task.state} and captured ${wanted ?? 'nothing'}, its usage record has ${cost ?? 'nothing'}`)
    }
    for (const one of byId.values()) if (!seen.tasks.has(one.id)) report(`${id} has a usage record of task ${one.id}, which is not there`)
  }

  return { checkFinal }
}

/** What a task was charged; null where its hold went back. */
function captureOf({ outcome, actualCost }: Task): number | null {
  if (!outcome || outcome.outcome === 'failed') return null
  return outcome.outcome === 'canceled' && outcome.cost === undefined ? null : actualCost
}
