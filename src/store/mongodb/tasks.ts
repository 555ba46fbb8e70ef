/** Tasks in MongoDB. How they are written; `task-lists.ts` reads them. */
import { Unavailable } from '../../errors.ts'
import { FINAL, type Task, type TaskFacts, type TaskGuard, type TaskState } from '../../tasks/task.ts'
import type { Store } from '../store.ts'
import { add, nounOf, stored, type Database, type Stored } from './database.ts'
import type { Deliveries } from './deliveries.ts'
import type { Indexes } from './indexes.ts'

/** What a tenant named goes as text: a field of a document may not have every name that a member of an object may. */
export type StoredTask = Omit<Stored<Task>, 'input' | 'metadata'> & { input: string; metadata: string }

export const taskIndexes = {
  tasks: [
    // createTask, taskWithKey
    {
      name: 'idempotency',
      key: { tenant: 1, 'idempotency.key': 1 },
      unique: true,
      partialFilterExpression: { 'idempotency.key': { $exists: true } },
    },
    // removeTasks. What has not ended is not among them.
    { name: 'ended', key: { endedAt: 1 }, partialFilterExpression: { endedAt: { $gt: 0 } } },
  ],
} satisfies Indexes

type Verbs = 'createTask' | 'moveTask' | 'renewTask' | 'relay' | 'removeTasks'

/** How often an Idempotency-Key may be taken and freed again while one request looks for whose it is. */
const MOST_TURNS = 5

export function openTasks(database: Database, deliveries: Deliveries): Pick<Store, Verbs> {
  const tasks = database.collection<StoredTask>('tasks')

  async function createTask(task: Task): ReturnType<Store['createTask']> {
    for (let turn = 0; turn < MOST_TURNS; turn++) {
      if ((await add(tasks, { ...stored(task), input: JSON.stringify(task.input), metadata: JSON.stringify(task.metadata) })) === 'added') return { outcome: 'created', task }
      const key = task.idempotency?.key
      const existing =
        (await tasks.findOne({ _id: task.id })) ??
        (key === undefined ? null : await tasks.findOne({ tenant: task.tenant, 'idempotency.key': key }))
      // Else it was rejected meanwhile, and its key is free.
      if (existing) return { outcome: 'existing', task: taskOf(existing) }
    }
    throw new Unavailable('store', new Error('the Idempotency-Key is taken and freed all the time'))
  }

  async function moveTask(id: string, guard: TaskGuard, to: TaskState, facts: TaskFacts): Promise<Task | null> {
    const moved = await tasks.findOneAndUpdate(passing(id, guard), { $set: { ...facts, state: to } }, { returnDocument: 'after' })
    return moved ? taskOf(moved) : null
  }

  async function renewTask(id: string, epoch: number, progress: number, sweepAt: number): Promise<'ok' | 'lost'> {
    const renewed = await tasks.updateOne(passing(id, { from: ['processing'], epoch }), { $set: { sweepAt }, $max: { progress } })
    return renewed.matchedCount === 1 ? 'ok' : 'lost'
  }

  /** The deliveries first: a crash before the outbox is cleared leaves the task due, and its relay is repeated. */
  async function relay(id: string, made: Parameters<Store['relay']>[1]): Promise<void> {
    if (!(await tasks.findOne({ _id: id }, { projection: { _id: 1 } }))) return
    await deliveries.add(made)
    const cleared = await tasks.updateOne({ _id: id }, { $set: { outbox: [], sweepAt: null } })
    if (cleared.matchedCount === 0) await deliveries.remove([id])
  }

  /** The tasks last: a crash before leaves them to be found again. */
  async function removeTasks(before: number, limit: number): Promise<number> {
    const done = { endedAt: { $gt: 0, $lt: before }, state: { $in: [...FINAL] }, outbox: { $size: 0 } }
    const old = await tasks.find(done, { projection: { _id: 1 } }).sort({ endedAt: 1 }).limit(limit).toArray()
    const ids = old.map(({ _id }) => _id)
    if (ids.length === 0) return 0
    await deliveries.remove(ids)
    return (await tasks.deleteMany({ _id: { $in: ids } })).deletedCount
  }

  return {
    createTask: (task) => database.ask(() => createTask(task)),
    moveTask: (...move) => database.ask(() => moveTask(...move)),
    renewTask: (...renewal) => database.ask(() => renewTask(...renewal)),
    relay: (id, made) => database.ask(() => relay(id, made)),
    removeTasks: (before, limit) => database.ask(() => removeTasks(before, limit)),
  }
}

export function taskOf({ input, metadata, ...facts }: StoredTask): Task {
  return { ...nounOf<Task>(facts), input: JSON.parse(input), metadata: JSON.parse(metadata) }
}

/** The task if it passes the guard. */
function passing(id: string, { from, epoch, epochBelow }: TaskGuard) {
  return {
    _id: id,
    state: { $in: [...from] },
    ...(epoch !== undefined && { epoch }),
    ...(epochBelow !== undefined && { $and: [{ epoch: { $lt: epochBelow } }] }),
  }
}
