/** Tasks in MongoDB: writes, and reads by id. `task-queries.ts` has the other queries. */
import { randomUUID } from 'node:crypto'
import { Busy } from '../../../domain/errors.ts'
import { fromStoredPrice, toStoredPrice, type StoredPrice } from '../../../domain/subscription/stored-subscription.ts'
import { FINAL, idAt, passes, type Task, type TaskFacts, type TaskGuard } from '../../../domain/task.ts'
import { putNewest } from '../../../domain/long-lived-maps.ts'
import type { Store } from '../store.ts'
import { batchChanges, batchInserts, batchReads, type Written } from './bulk-commands.ts'
import { fromStored, known, toStored, type Database, type Stored } from './database.ts'
import type { Deliveries } from './deliveries.ts'
import type { EventLog } from './event-log.ts'
import type { Indexes } from './indexes.ts'

/** Members named by a tenant are stored as JSON text: MongoDB does not allow every field name. */
export type StoredTask = Omit<Stored<Task>, 'kind' | 'price' | 'input' | 'metadata'> & {
  verb: string
  price: StoredPrice
  input: string
  metadata: string
} & Written

export const taskIndexes = {
  tasks: [
    // createTask, taskWithKey
    {
      name: 'idempotency',
      key: { tenant: 1, 'idempotency.key': 1 },
      unique: true,
      partialFilterExpression: { 'idempotency.key': { $exists: true } },
    },
  ],
} satisfies Indexes

type Verbs = 'createTask' | 'moveTask' | 'renewTask' | 'relay' | 'removeTasks' | 'task'
type Change = TaskFacts & Pick<Partial<Task>, 'state' | 'eventsLogged'>

/** Attempts of a write while other processes change the task, or take and free its Idempotency-Key. */
const MAX_TRIES = 5
/** Cached tasks, as last read or written by this process: one process usually moves a task through several states. */
const MAX_CACHED = 1000

export function openTasks(database: Database, deliveries: Deliveries, log: EventLog): Pick<Store, Verbs> {
  const tasks = database.collection<StoredTask>('tasks')
  const read = batchReads(tasks, '_id')
  const insert = batchInserts(tasks, nameOf, weigh)
  const swap = batchChanges(tasks)
  const cache = new Map<string, StoredTask>()

  async function createTask(task: Task): ReturnType<Store['createTask']> {
    const made = documentOf(task)
    for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
      if ((await insert(made)) === 'added') {
        remember(made)
        return { outcome: 'created', task }
      }
      const key = task.idempotency?.key
      const existing =
        (await read(task.id)) ?? (key === undefined ? null : await tasks.findOne({ tenant: task.tenant, 'idempotency.key': key }))
      // Otherwise it was rejected meanwhile, and its key is free.
      if (existing) return { outcome: 'existing', task: taskOf(existing) }
    }
    throw new Busy('store', new Error('the Idempotency-Key is taken and freed concurrently'))
  }

  /**
   * Writes the change that `change` returns for a task, and returns the task as it is then; null when there is no change or no task. A cached task may only be
   * used for a write, whose comparison of `write` proves that nothing came between.
   */
  async function edit(id: string, change: (task: StoredTask) => Change | null): Promise<StoredTask | null> {
    for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
      let before = cache.get(id) ?? null
      cache.delete(id)
      let changed = before && change(before)
      if (!changed) {
        before = await read(id)
        changed = before && change(known(before))
      }
      if (!before || !changed) return null
      const next = { _id: id, ...changed, write: randomUUID() }
      if ((await swap({ next, last: before.write ?? null, when: {} })) === 'swapped') {
        const after = { ...before, ...next }
        remember(after)
        return after
      }
    }
    throw new Busy('store', new Error('the task is changed concurrently'))
  }

  /** Caches a task that this process is likely to write next. */
  function remember(task: StoredTask): void {
    cache.delete(task._id)
    if (FINAL.includes(task.state) && task.outbox.length === 0) return
    putNewest(cache, task._id, task, MAX_CACHED)
  }

  async function task(tenant: string, id: string): Promise<Task | null> {
    const found = await read(id)
    if (found?.tenant !== tenant) return null
    if (!cache.has(id)) remember(known(found))
    return taskOf(found)
  }

  /** Events and deliveries first: a crash before the task is written leaves it due for a sweep, which repeats all. */
  const relay: Store['relay'] = async (id, made, events, end) => {
    const before = cache.get(id) ?? (await read(id))
    if (!before) return null
    known(before)
    const bodies = await log.append(events)
    // What is logged is sent: another settlement may have read another balance.
    const sent = made.map((delivery) => ({ ...delivery, body: bodies.get(delivery.id) ?? delivery.body }))
    await deliveries.add(sent)
    const left: Change = { outbox: [], sweepAt: null, eventsLogged: true }
    const relayed = await edit(id, (task) => {
      if (!end) return { ...left, state: task.state }
      return task.state === 'settling' ? { ...end.facts, ...left, state: end.state } : null
    })
    if (!relayed && !(await read(id))) await deliveries.remove([id])
    return relayed && taskOf(relayed)
  }

  /** Tasks last: after a crash the next sweep finds them again. */
  async function removeTasks(before: number, limit: number): Promise<number> {
    // Found by their ids: what ended before was created before.
    const done = { _id: { $lt: idAt(before) }, endedAt: { $gt: 0, $lt: before }, state: { $in: [...FINAL] }, outbox: { $size: 0 } }
    const old = await tasks.find(done, { projection: { _id: 1 }, limit }).toArray()
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

  return { createTask, moveTask, renewTask, task, relay, removeTasks }
}

function documentOf({ kind, price, input, metadata, ...facts }: Task): StoredTask {
  const texts = { input: JSON.stringify(input), metadata: JSON.stringify(metadata) }
  return { ...toStored(facts), verb: kind, price: toStoredPrice(price), ...texts, write: randomUUID() }
}

/** The task of a document. */
export function taskOf({ verb, price, input, metadata, write: _write, ...facts }: StoredTask): Task {
  const texts = { input: JSON.parse(input), metadata: JSON.parse(metadata) }
  return { ...fromStored(facts), kind: verb, price: fromStoredPrice(price), ...texts }
}

/** The value by which inserts conflict: the Idempotency-Key, or the id of a task without one. */
function nameOf({ _id, tenant, idempotency }: StoredTask): string {
  return idempotency ? `${tenant} ${idempotency.key}` : _id
}

/** Approximate bytes of a task. */
function weigh({ input, metadata, outbox }: StoredTask): number {
  return 1000 + input.length + metadata.length + outbox.reduce((sum, { body }) => sum + body.length, 0)
}
