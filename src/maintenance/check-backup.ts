/** `tollgate backup check`: whether a store, a sealing key and a storage of results belong together, and the store keeps its invariants. Reads only. */
import type { SealingKeys } from '../domain/api-keys.ts'
import type { Files } from '../backends/files/files.ts'
import type { Store } from '../backends/store/store.ts'
import { resultsOf } from '../domain/task.ts'
import { verifyStore, type Verified } from '../verify/verify.ts'
import { readAll } from '../tasks/paged-reads.ts'
import { reseal, type Resealed } from './reseal.ts'

export type CheckedBackup = Verified & {
  keys: Resealed
  /** Results of tasks that are not expired. `missing`: ids of the tasks without them. */
  results: { present: number; missing: string[] }
}

/** Times are epoch milliseconds: `now`, and since when tasks and events are kept. */
export async function checkBackup(
  store: Store,
  files: Files,
  sealing: SealingKeys,
  times: { now: number; keptSince: number; eventsKeptSince: number },
): Promise<CheckedBackup> {
  const results = { present: 0, missing: [] as string[] }
  let lastChange = 0
  for await (const { at } of readAll(store, 'subscriptions')) lastChange = Math.max(lastChange, at)
  for await (const { createdAt, attempts } of readAll(store, 'deliveries'))
    lastChange = Math.max(lastChange, createdAt, attempts.at(-1)?.at ?? 0)
  for await (const { id, createdAt, startedAt, endedAt, outcome } of readAll(store, 'tasks')) {
    lastChange = Math.max(lastChange, createdAt, startedAt ?? 0, endedAt ?? 0)
    if (outcome?.outcome !== 'completed' || outcome.result.expiresAt <= times.now) continue
    const all = await Promise.all(resultsOf(outcome.result).map(({ file }) => files.stat(file)))
    if (all.includes(null)) results.missing.push(id)
    else results.present++
  }
  // Since a copy was made, nobody looks after its open tasks.
  const verified = await verifyStore(store, { ...times, now: Math.min(times.now, lastChange) })
  return { ...verified, keys: await reseal(store, sealing, null), results }
}
