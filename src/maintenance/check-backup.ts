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

/** The newest time of a change. Since a copy was made, nobody looks after its open tasks. */
async function lastChange(store: Store): Promise<number> {
  let at = 0
  for await (const record of readAll(store, 'subscriptions')) at = Math.max(at, record.at)
  for await (const { createdAt, startedAt, endedAt } of readAll(store, 'tasks')) at = Math.max(at, createdAt, startedAt ?? 0, endedAt ?? 0)
  return at
}

/** Times are epoch milliseconds: `now`, and since when tasks and events are kept. */
export async function checkBackup(
  store: Store,
  files: Files,
  sealing: SealingKeys,
  times: { now: number; keptSince: number; eventsKeptSince: number },
): Promise<CheckedBackup> {
  const verified = await verifyStore(store, { ...times, now: Math.min(times.now, await lastChange(store)) })
  const results = { present: 0, missing: [] as string[] }
  for await (const { id, outcome } of readAll(store, 'tasks')) {
    if (outcome?.outcome !== 'completed' || outcome.result.expiresAt <= times.now) continue
    const all = await Promise.all(resultsOf(outcome.result).map(({ file }) => files.stat(file)))
    if (all.includes(null)) results.missing.push(id)
    else results.present++
  }
  return { ...verified, keys: await reseal(store, sealing, null), results }
}
