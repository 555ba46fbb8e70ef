/** Task queries in MongoDB: by Idempotency-Key, a tenant's list, tasks due for a sweep, counts of open tasks. */
import type { Filter } from 'mongodb'
import { KINDS } from '../../../domain/media-generations.ts'
import { OPERATIONS } from '../../../domain/media-operations.ts'
import { idRange, type PublicStatus, type Task, type TaskFilter, type TaskState } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import type { DueList, OpenTasks } from '../task-store.ts'
import { KNOWN, type Database } from './database.ts'
import type { Indexes } from './indexes.ts'
import { taskOf, type StoredTask } from './tasks.ts'

/** Queued tasks that have been started, and those that have not. */
const RETRYING = { state: 'queued', startedAt: { $gt: 0 } } as const
const WAITING = { state: 'queued', startedAt: null } as const
/** Each member of an index that a write touches costs the server, so that no index has both open and ended tasks, and those of open ones are few. */
const OPEN = { endedAt: null } as const
const ENDED = { endedAt: { $gt: 0 } } as const
const WITH_SWEEP = { sweepAt: { $gt: 0 } } as const

export const taskQueryIndexes = {
  tasks: [
    // tasks: open ones, of which a plan has a limited number, so that the other members are read in the documents
    { name: 'open_of_tenant', key: { tenant: 1, state: 1, _id: -1 }, partialFilterExpression: OPEN },
    // tasks: those that wait for another attempt, for the status `processing`
    { name: 'retrying', key: { tenant: 1, object: 1, _id: -1, createdAt: 1 }, partialFilterExpression: RETRYING },
    // tasks: ended ones. A kind belongs to one object.
    { name: 'ended_of_tenant', key: { tenant: 1, state: 1, verb: 1, _id: -1 }, partialFilterExpression: ENDED },
    // tasksDue, openTasks. A final task with an empty outbox is never due again.
    { name: 'due_by_tenant', key: { state: 1, tenant: 1, sweepAt: 1 }, partialFilterExpression: WITH_SWEEP },
  ],
} satisfies Indexes

type Verbs = 'taskWithKey' | 'tasks' | 'tasksDue' | 'oldestTask' | 'openTasks'

const VISIBLE_OPEN: readonly TaskState[] = ['queued', 'processing', 'settling']
const RUNNING: readonly TaskState[] = ['processing', 'settling']
const VISIBLE_ENDED: readonly TaskState[] = ['completed', 'failed', 'canceled']

/** The parts of a list, in the order of their reading: a task that moves on meanwhile is in one of them. Each is read by an index of its own. */
function partsOf(object: Task['object'], kind: string | null, status: PublicStatus | null): Filter<StoredTask>[] {
  const open = { object, ...(kind !== null && { verb: kind }), ...OPEN }
  const ended = { verb: { $in: kind !== null ? [kind] : [...(object === 'generation' ? KINDS : OPERATIONS)] }, object, ...ENDED }
  const retrying = { ...open, ...RETRYING }
  const running = { ...open, state: { $in: [...RUNNING] } }
  switch (status) {
    case null:
      return [
        { ...open, state: { $in: [...VISIBLE_OPEN] } },
        { ...ended, state: { $in: [...VISIBLE_ENDED] } },
      ]
    case 'processing':
      // A task goes to and fro between the two.
      return [retrying, running, retrying]
    case 'queued':
      return [{ ...open, ...WAITING }]
    default:
      return [{ ...ended, state: status }]
  }
}

export function openTaskQueries(database: Database): Pick<Store, Verbs> {
  const collection = database.collection<StoredTask>('tasks')
  const entityOrNull = (found: StoredTask | null) => (found ? taskOf(found) : null)

  const openTasks = () =>
    collection
      .aggregate<OpenTasks>([
        { $match: { state: { $in: ['pending', ...VISIBLE_OPEN] }, ...WITH_SWEEP } },
        {
          $group: {
            _id: { state: '$state', kind: '$verb' },
            count: { $sum: 1 },
            oldestAt: { $min: { $ifNull: ['$outcome.at', '$createdAt'] } },
          },
        },
        { $project: { _id: 0, state: '$_id.state', kind: '$_id.kind', count: 1, oldestAt: 1 } },
      ])
      .toArray()

  /** Reads pages in the order of the tenants; the page after one that a backlog fills begins behind its tenant. */
  async function due(now: number, { states, after, limit, perTenant }: DueList): Promise<Task[]> {
    const chosen: StoredTask[] = []
    for (let from = after; chosen.length < limit;) {
      const isDue = { state: { $in: [...states] }, tenant: { $gt: from }, sweepAt: { $gt: 0, $lte: now }, ...KNOWN }
      const found = await collection.find(isDue, { sort: { tenant: 1, sweepAt: 1 }, limit }).toArray()
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
    const found = new Map<string, StoredTask>()
    for (const part of partsOf(filter.object, filter.kind, filter.status)) {
      const page = await collection.find({ ...range, ...part }, { sort: { _id: -1 }, limit }).toArray()
      for (const one of page) found.set(one._id, one)
    }
    return [...found.values()]
      .sort((a, b) => (a._id < b._id ? 1 : -1))
      .slice(0, limit)
      .map(taskOf)
  }

  return {
    taskWithKey: async (tenant, key) => entityOrNull(await collection.findOne({ tenant, 'idempotency.key': key })),
    tasks: page,
    tasksDue: (now, lists) => Promise.all(lists.map((list) => due(now, list))),
    oldestTask: async () => {
      const oldest = await collection.findOne({ _id: { $gt: '' } }, { projection: { createdAt: 1 }, sort: { _id: 1 } })
      return oldest?.createdAt ?? null
    },
    openTasks,
  }
}

function rangeOf(tenant: string, filter: TaskFilter, before: string | null) {
  const [first, end] = idRange(filter, before)
  const { createdAfter, createdBefore } = filter
  return { tenant, _id: { $gte: first, $lt: end }, createdAt: { $gt: createdAfter ?? -1, $lt: createdBefore ?? Number.MAX_SAFE_INTEGER } }
}
