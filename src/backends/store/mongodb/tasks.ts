/** Tasks in MongoDB. How they are written; `task-lists.ts` lists them. */
import { randomUUID } from 'node:crypto'
import { Unavailable } from '../../../domain/errors.ts'
import { FINAL, type Task, type TaskFacts, type TaskGuard } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import { batchInserts, batchReads, batchReplacements, type Written } from './bulk-commands.ts'
import { nounOf, stored, type Database, type Stored } from './database.ts'
import type { Deliveries } from './deliveries.ts'
import type { Indexes } from './indexes.ts'

/** What a tenant named goes as text: a field of a document may not have every name that a member of an object may. */
export type StoredTask = Omit<Stored<Task>, 'input' | 'metadata'> & { input: string; metadata: string } & Written

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

type Verbs = 'createTask' | 'moveTask' | 'renewTask' | 'relay' | 'removeTasks' | 'task'
type Change = TaskFacts & { state?: Task['state'] }

/** How often a task may change, or an Idempotency-Key be taken and freed, under one who wants to write. */
const MOST_TURNS = 5
/** Tasks that are kept as they were last read or written here: most are written by one process from one state to the next. */
const MOST_KEPT = 1000

export function openTasks(database: Database, deliveries: Deliveries): Pick<Store, Verbs> {
  const tasks = database.collection<StoredTask>('tasks')
  const read = batchReads(tasks, '_id')
  const insert = batchInserts(tasks, nameOf, weigh)
  const swap = batchReplacements(tasks, weigh)
  const kept = new Map<string, StoredTask>()

  async function createTask(task: Task): ReturnType<Store['createTask']> {
    const made = { ...stored(task), input: JSON.stringify(task.input), metadata: JSON.stringify(task.metadata), write: randomUUID() }
    for (let turn = 0; turn < MOST_TURNS; turn++) {
      if ((await insert(made)) === 'added') {
        keep(made)
        return { outcome: 'created', task }
      }
      const key = task.idempotency?.key
      const existing = (await read(task.id)) ?? (key === undefined ? null : await tasks.findOne({ tenant: task.tenant, 'idempotency.key': key }))
      // Else it was rejected meanwhile, and its key is free.
      if (existing) return { outcome: 'existing', task: taskOf(existing) }
    }
    throw new Unavailable('store', new Error('the Idempotency-Key is taken and freed all the time'))
  }

  /**
   * Writes what `change` makes of a task, and answers the task as it is then; null when that is nothing, or it is not there. A task that was kept may only serve a
   * write, which proves by its `write` that nothing has come between.
   */
  async function edit(id: string, change: (task: StoredTask) => Change | null): Promise<StoredTask | null> {
    for (let turn = 0; turn < MOST_TURNS; turn++) {
      let before = kept.get(id) ?? null
      kept.delete(id)
      let changed = before && change(before)
      if (!changed) {
        before = await read(id)
        changed = before && change(before)
      }
      if (!before || !changed) return null
      const after = { ...before, ...changed, write: randomUUID() }
      // Null, not undefined, which the driver would leave out: such a filter takes every document of the id.
      if ((await swap({ next: after, when: { write: before.write ?? null } })) === 'swapped') {
        keep(after)
        return after
      }
    }
    throw new Unavailable('store', new Error('the task changes all the time'))
  }

  /** Keeps a task that is likely to be written by this process next. */
  function keep(task: StoredTask): void {
    kept.delete(task._id)
    if (FINAL.includes(task.state) && task.outbox.length === 0) return
    kept.set(task._id, task)
    const oldest = kept.size > MOST_KEPT ? kept.keys().next().value : undefined
    if (oldest !== undefined) kept.delete(oldest)
  }

  async function task(tenant: string, id: string): Promise<Task | null> {
    const found = await read(id)
    if (found?.tenant !== tenant) return null
    if (!kept.has(id)) keep(found)
    return taskOf(found)
  }

  /** The deliveries first: a crash before the outbox is cleared leaves the task due, and its relay is repeated. */
  async function relay(id: string, made: Parameters<Store['relay']>[1]): Promise<void> {
    if (!kept.has(id) && !(await read(id))) return
    await deliveries.add(made)
    const cleared = await edit(id, () => ({ outbox: [], sweepAt: null }))
    if (!cleared) await deliveries.remove([id])
  }

  /** The tasks last: a crash before leaves them to be found again. */
  async function removeTasks(before: number, limit: number): Promise<number> {
    const done = { endedAt: { $gt: 0, $lt: before }, state: { $in: [...FINAL] }, outbox: { $size: 0 } }
    const old = await tasks.find(done, { projection: { _id: 1 } }).limit(limit).toArray()
    const ids = old.map(({ _id }) => _id)
    if (ids.length === 0) return 0
    await deliveries.remove(ids)
    return (await tasks.deleteMany({ _id: { $in: ids } })).deletedCount
  }

  const moveTask: Store['moveTask'] = async (id, guard, to, facts) => {
    const moved = await edit(id, (task) => (passes(task, guard) ? { ...facts, state: to } : null))
    return moved && taskOf(moved)
  }

  const renewTask: Store['renewTask'] = async (id, epoch, progress, sweepAt) => {
    const guard: TaskGuard = { from: ['processing'], epoch }
    const renewed = await edit(id, (task) => (passes(task, guard) ? { sweepAt, progress: Math.max(task.progress, progress) } : null))
    return renewed ? 'ok' : 'lost'
  }

  return {
    createTask: (task) => database.ask(() => createTask(task)),
    moveTask: (...move) => database.ask(() => moveTask(...move)),
    renewTask: (...renewal) => database.ask(() => renewTask(...renewal)),
    task: (tenant, id) => database.ask(() => task(tenant, id)),
    relay: (id, made) => database.ask(() => relay(id, made)),
    removeTasks: (before, limit) => database.ask(() => removeTasks(before, limit)),
  }
}

export function taskOf({ input, metadata, write: _write, ...facts }: StoredTask): Task {
  return { ...nounOf<Task>(facts), input: JSON.parse(input), metadata: JSON.parse(metadata) }
}

function passes(task: StoredTask, { from, epoch, epochBelow }: TaskGuard): boolean {
  return from.includes(task.state) && (epoch === undefined || task.epoch === epoch) && (epochBelow === undefined || task.epoch < epochBelow)
}

/** Requests under one Idempotency-Key want the same; without one nobody else has the id. */
function nameOf({ _id, tenant, idempotency }: StoredTask): string {
  return idempotency ? `${tenant} ${idempotency.key}` : _id
}

/** About how many bytes a task has. */
function weigh({ input, metadata, outbox }: StoredTask): number {
  return 1000 + input.length + metadata.length + outbox.reduce((sum, { body }) => sum + body.length, 0)
}
