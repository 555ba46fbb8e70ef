/** Tasks as they are listed from MongoDB: by Idempotency-Key, a tenant's list, those that are due for a look, and how many are open. */
import type { TaskFilter, TaskState } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import type { Database } from './database.ts'
import type { Indexes } from './indexes.ts'
import { taskOf, type StoredTask } from './tasks.ts'

export const taskListIndexes = {
  tasks: [
    // tasks
    { name: 'listed', key: { tenant: 1, object: 1, state: 1, _id: -1, createdAt: 1 } },
    { name: 'listed_by_verb', key: { tenant: 1, object: 1, verb: 1, state: 1, _id: -1, createdAt: 1 } },
    // tasksDue. A task that has ended and was relayed is never due again.
    { name: 'due', key: { sweepAt: 1 }, partialFilterExpression: { sweepAt: { $gt: 0 } } },
    // openTasks
    { name: 'open', key: { state: 1, verb: 1 }, partialFilterExpression: { endedAt: null } },
  ],
} satisfies Indexes

type Verbs = 'taskWithKey' | 'tasks' | 'tasksDue' | 'oldestTask' | 'openTasks'
type Open = { state: TaskState; verb: string; count: number }

const VISIBLE: readonly TaskState[] = ['queued', 'processing', 'settling', 'completed', 'failed', 'canceled']
const OPEN: readonly TaskState[] = ['pending', 'queued', 'processing', 'settling']

export function openTaskLists(database: Database): Pick<Store, Verbs> {
  const collection = database.collection<StoredTask>('tasks')
  const nounOrNull = (found: StoredTask | null) => (found ? taskOf(found) : null)
  const list = async (found: Promise<StoredTask[]>) => (await found).map(taskOf)

  const openTasks = () =>
    collection
      .aggregate<Open>([
        { $match: { endedAt: null, state: { $in: OPEN } } },
        { $group: { _id: { state: '$state', verb: '$verb' }, count: { $sum: 1 } } },
        { $project: { _id: 0, state: '$_id.state', verb: '$_id.verb', count: 1 } },
      ])
      .toArray()

  return {
    taskWithKey: (tenant, key) => database.ask(async () => nounOrNull(await collection.findOne({ tenant, 'idempotency.key': key }))),
    tasks: (tenant, filter, before, limit) =>
      database.ask(() => list(collection.find(listing(tenant, filter, before)).sort({ _id: -1 }).limit(limit).toArray())),
    tasksDue: (now, limit) =>
      database.ask(() => list(collection.find({ sweepAt: { $gt: 0, $lte: now } }).sort({ sweepAt: 1 }).limit(limit).toArray())),
    oldestTask: () => database.ask(async () => (await collection.find({ _id: { $gt: '' } }, { projection: { createdAt: 1 } }).sort({ _id: 1 }).limit(1).next())?.createdAt ?? null),
    openTasks: () => database.ask(openTasks),
  }
}

/** How far the time in a task's id may be from its `createdAt`: no request takes as long. */
const ID_SLACK_MS = 10 * 60_000

/** Comes after every id. */
const LAST = '~'

function listing(tenant: string, { object, verb, states, createdAfter, createdBefore }: TaskFilter, before: string | null) {
  // Without bounds for the ids, a time long ago would walk through all that is newer.
  const lowest = createdAfter === null ? '' : idAt(createdAfter - ID_SLACK_MS)
  const latest = createdBefore === null ? LAST : idAt(createdBefore + ID_SLACK_MS)
  return {
    tenant,
    object,
    ...(verb !== null && { verb }),
    state: { $in: VISIBLE.filter((state) => states?.includes(state) ?? true) },
    _id: { $gte: lowest, $lt: before !== null && before < latest ? before : latest },
    createdAt: { $gt: createdAfter ?? -1, $lt: createdBefore ?? Number.MAX_SAFE_INTEGER },
  }
}

/** What the UUIDs v7 of a millisecond begin with: 48 bits of time (RFC 9562, section 5.7). */
function idAt(ms: number): string {
  const time = Math.max(ms, 0).toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}`
}
