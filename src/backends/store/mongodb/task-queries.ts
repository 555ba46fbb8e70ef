/** Task queries in MongoDB: by Idempotency-Key, a tenant's list, tasks due for a sweep, counts of open tasks. */
import type { Filter } from 'mongodb'
import type { PublicStatus, Task, TaskFilter, TaskState } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import type { DueList, OpenTasks } from '../task-store.ts'
import type { Database } from './database.ts'
import type { Indexes } from './indexes.ts'
import { taskOf, type StoredTask } from './tasks.ts'

/** Queued tasks that have been started, and those that have not. */
const RETRYING = { state: 'queued', startedAt: { $gt: 0 } } as const
const WAITING = { state: 'queued', startedAt: null } as const

export const taskQueryIndexes = {
  tasks: [
    // tasks
    { name: 'listed', key: { tenant: 1, object: 1, state: 1, _id: -1, createdAt: 1 } },
    { name: 'listed_by_verb', key: { tenant: 1, object: 1, verb: 1, state: 1, _id: -1, createdAt: 1 } },
    // tasks: those that wait for another attempt, for the status `processing`
    { name: 'retrying', key: { tenant: 1, object: 1, _id: -1, createdAt: 1 }, partialFilterExpression: RETRYING },
    { name: 'retrying_by_verb', key: { tenant: 1, object: 1, verb: 1, _id: -1, createdAt: 1 }, partialFilterExpression: RETRYING },
    // tasks: those of the status `queued`
    { name: 'waiting', key: { tenant: 1, object: 1, _id: -1, createdAt: 1 }, partialFilterExpression: WAITING },
    { name: 'waiting_by_verb', key: { tenant: 1, object: 1, verb: 1, _id: -1, createdAt: 1 }, partialFilterExpression: WAITING },
    // tasksDue. A final task with an empty outbox is never due again.
    { name: 'due_by_tenant', key: { state: 1, tenant: 1, sweepAt: 1 }, partialFilterExpression: { sweepAt: { $gt: 0 } } },
    // openTasks
    { name: 'open', key: { state: 1, verb: 1 }, partialFilterExpression: { endedAt: null } },
  ],
} satisfies Indexes

type Verbs = 'taskWithKey' | 'tasks' | 'tasksDue' | 'oldestTask' | 'openTasks'

const VISIBLE: readonly TaskState[] = ['queued', 'processing', 'settling', 'completed', 'failed', 'canceled']

/** Each list is read by an index of its own. */
function partsOf(status: PublicStatus | null): Filter<StoredTask>[] {
  if (status === null) return [{ state: { $in: [...VISIBLE] } }]
  if (status === 'processing') return [{ state: { $in: ['processing', 'settling'] } }, RETRYING]
  return [status === 'queued' ? WAITING : { state: status }]
}

const OPEN: readonly TaskState[] = ['pending', 'queued', 'processing', 'settling']

export function openTaskQueries(database: Database): Pick<Store, Verbs> {
  const collection = database.collection<StoredTask>('tasks')
  const entityOrNull = (found: StoredTask | null) => (found ? taskOf(found) : null)

  const openTasks = () =>
    collection
      .aggregate<OpenTasks>([
        { $match: { endedAt: null, state: { $in: OPEN } } },
        { $group: { _id: { state: '$state', kind: '$verb' }, count: { $sum: 1 }, oldestAt: { $min: '$createdAt' } } },
        { $project: { _id: 0, state: '$_id.state', kind: '$_id.kind', count: 1, oldestAt: 1 } },
      ])
      .toArray()

  /** Reads pages in the order of the tenants; the page after one that a backlog fills begins behind its tenant. */
  async function due(now: number, { states, after, limit, perTenant }: DueList): Promise<Task[]> {
    const chosen: StoredTask[] = []
    for (let from = after; chosen.length < limit;) {
      const found = await collection
        .find({ state: { $in: [...states] }, tenant: { $gt: from }, sweepAt: { $gt: 0, $lte: now } })
        .sort({ tenant: 1, sweepAt: 1 })
        .limit(limit)
        .toArray()
      const ofEach = [...Map.groupBy(found, ({ tenant }) => tenant).values()]
      chosen.push(...ofEach.flatMap((own) => own.slice(0, perTenant)))
      const last = found.at(-1)
      if (!last || found.length < limit) break
      from = last.tenant
    }
    return chosen.slice(0, limit).map(taskOf)
  }

  async function page(tenant: string, filter: TaskFilter, before: string | null, limit: number): Promise<Task[]> {
    const range = rangeOf(tenant, filter, before)
    const found = await Promise.all(
      partsOf(filter.status).map((part) =>
        collection
          .find({ ...range, ...part })
          .sort({ _id: -1 })
          .limit(limit)
          .toArray(),
      ),
    )
    const newest = found.flat().toSorted((a, b) => (a._id < b._id ? 1 : -1))
    // A task that was retried between the two reads is in both.
    return newest
      .filter(({ _id }, n) => _id !== newest[n - 1]?._id)
      .slice(0, limit)
      .map(taskOf)
  }

  return {
    taskWithKey: (tenant, key) => database.run(async () => entityOrNull(await collection.findOne({ tenant, 'idempotency.key': key }))),
    tasks: (tenant, filter, before, limit) => database.run(() => page(tenant, filter, before, limit)),
    tasksDue: (now, lists) => database.run(() => Promise.all(lists.map((list) => due(now, list)))),
    oldestTask: () =>
      database.run(
        async () =>
          (
            await collection
              .find({ _id: { $gt: '' } }, { projection: { createdAt: 1 } })
              .sort({ _id: 1 })
              .limit(1)
              .next()
          )?.createdAt ?? null,
      ),
    openTasks: () => database.run(openTasks),
  }
}

/** Tolerance between the time in a task's id and its `createdAt`: longer than any request takes. */
const ID_SLACK_MS = 10 * 60_000

/** Sorts after every id. */
const LAST = '~'

function rangeOf(tenant: string, { object, kind, createdAfter, createdBefore }: TaskFilter, before: string | null) {
  // Without bounds on the ids, a filter on an old time would scan all newer tasks.
  const lowest = createdAfter === null ? '' : idAt(createdAfter - ID_SLACK_MS)
  const latest = createdBefore === null ? LAST : idAt(createdBefore + ID_SLACK_MS)
  return {
    tenant,
    object,
    ...(kind !== null && { verb: kind }),
    _id: { $gte: lowest, $lt: before !== null && before < latest ? before : latest },
    createdAt: { $gt: createdAfter ?? -1, $lt: createdBefore ?? Number.MAX_SAFE_INTEGER },
  }
}

/** Prefix of the UUIDs v7 of a millisecond: 48 bits of time (RFC 9562, section 5.7). */
function idAt(ms: number): string {
  const time = Math.max(ms, 0).toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}`
}
