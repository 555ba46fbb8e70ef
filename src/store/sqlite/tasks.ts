/** Tasks in SQLite: the task as JSON, and beside it what it is looked up by. */
import { FINAL, type Task, type TaskFilter, type TaskGuard, type TaskState } from '../../tasks/task.ts'
import type { Store } from '../store.ts'
import type { Database } from './database.ts'
import type { Deliveries } from './deliveries.ts'

export const taskTables = `
  CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    object TEXT NOT NULL,
    verb TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    idempotency_key TEXT,
    sweep_at INTEGER,
    -- When it ended, once nothing of it is left to relay.
    done_at INTEGER,
    record TEXT NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX tasks_by_key ON tasks (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
  CREATE INDEX tasks_listed ON tasks (tenant, object, state, id, created_at);
  CREATE INDEX tasks_listed_by_verb ON tasks (tenant, object, verb, state, id, created_at);
  CREATE INDEX tasks_due ON tasks (sweep_at) WHERE sweep_at IS NOT NULL;
  CREATE INDEX tasks_open ON tasks (state, verb) WHERE state IN ('pending', 'queued', 'processing', 'settling');
  CREATE INDEX tasks_done ON tasks (done_at) WHERE done_at IS NOT NULL;
`

type Row = { record: string }
type Verbs =
  | 'createTask' | 'moveTask' | 'renewTask' | 'task' | 'taskWithKey' | 'tasks' | 'tasksDue' | 'openTasks' | 'removeTasks' | 'relay'

export function openTasks(database: Database, deliveries: Deliveries): Pick<Store, Verbs> {
  const insert = database.prepare(
    `INSERT INTO tasks (tenant, object, verb, created_at, state, idempotency_key, sweep_at, done_at, record, id)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
  )
  const update = database.prepare('UPDATE tasks SET state = ?, idempotency_key = ?, sweep_at = ?, done_at = ?, record = ? WHERE id = ?')
  const byId = database.prepare<Row>('SELECT record FROM tasks WHERE id = ?')
  const byKey = database.prepare<Row>('SELECT record FROM tasks WHERE tenant = ? AND idempotency_key = ?')
  const due = database.prepare<Row>('SELECT record FROM tasks WHERE sweep_at <= ? ORDER BY sweep_at LIMIT ?')
  const open = database.prepare<{ state: TaskState; verb: string; count: number }>(
    `SELECT state, verb, count(*) AS count FROM tasks WHERE state IN ('pending', 'queued', 'processing', 'settling') GROUP BY state, verb`,
  )
  const done = database.prepare<{ id: string }>('SELECT id FROM tasks WHERE done_at < ? ORDER BY done_at LIMIT ?')
  const remove = database.prepare('DELETE FROM tasks WHERE id = ?')
  const list = listing(database)

  function find(id: string): Task | null {
    return parse(byId.get(id))
  }

  /** Reads a task, makes the next one of it, or null to leave it, and writes that: inside a transaction nothing can come between. */
  function edit(id: string, next: (task: Task) => Task | null): Task | null {
    const stored = find(id)
    const task = stored && next(stored)
    if (task) update.run(...changing(task), id)
    return task
  }

  return {
    createTask: (task) =>
      database.write(() => {
        const { id, tenant, object, verb, createdAt, idempotency } = task
        const created = insert.run(tenant, object, verb, createdAt, ...changing(task), id) === 1
        const stored = created ? null : (find(id) ?? parse(byKey.get(tenant, idempotency?.key ?? null)))
        return stored ? { outcome: 'existing', task: stored } : { outcome: 'created', task }
      }),
    moveTask: (id, guard, to, facts) => database.write(() => edit(id, (task) => (passes(task, guard) ? { ...task, ...facts, state: to } : null))),
    renewTask: (id, epoch, progress, sweepAt) =>
      database.write(() => {
        const renewed = edit(id, (task) => {
          return passes(task, { from: ['processing'], epoch }) ? { ...task, progress: Math.max(task.progress, progress), sweepAt } : null
        })
        return renewed ? 'ok' : 'lost'
      }),
    task: (tenant, id) =>
      database.read(() => {
        const task = find(id)
        return task?.tenant === tenant ? task : null
      }),
    taskWithKey: (tenant, key) => database.read(() => parse(byKey.get(tenant, key))),
    tasks: (tenant, filter, before, limit) =>
      database.read(() => list(tenant, filter, before, limit).flatMap((id) => find(id) ?? [])),
    tasksDue: (now, limit) => database.read(() => due.all(now, limit).flatMap((row) => parse(row) ?? [])),
    openTasks: () => database.read(() => open.all().map(({ state, verb, count }) => ({ state, verb, count }))),
    removeTasks: (before, limit) =>
      database.write(() => {
        const ids = done.all(before, limit).map(({ id }) => id)
        for (const id of ids) {
          deliveries.remove(id)
          remove.run(id)
        }
        return ids.length
      }),
    relay: async (taskId, made) => {
      await database.write(() => {
        if (edit(taskId, (task) => ({ ...task, outbox: [], sweepAt: null }))) deliveries.add(made)
      })
    },
  }
}

const VISIBLE: readonly TaskState[] = ['queued', 'processing', 'settling', 'completed', 'failed', 'canceled']

/** How far the time in a task's id may be from its `createdAt`: no request lives as long. */
const ID_SLACK_MS = 10 * 60_000

/** The ids of a page: each state has its own order in the index, so the newest of each are read and the newest of all are kept. */
function listing(database: Database): (tenant: string, filter: TaskFilter, before: string | null, limit: number) => string[] {
  const range = 'state = ? AND id >= ? AND id < ? AND created_at > ? AND created_at < ? ORDER BY id DESC LIMIT ?'
  const ofAll = database.prepare<{ id: string }>(`SELECT id FROM tasks WHERE tenant = ? AND object = ? AND ${range}`)
  const ofVerb = database.prepare<{ id: string }>(`SELECT id FROM tasks WHERE tenant = ? AND object = ? AND verb = ? AND ${range}`)

  return (tenant, { object, verb, states, createdAfter, createdBefore }, before, limit) => {
    const [after, until] = [createdAfter ?? -1, createdBefore ?? Number.MAX_SAFE_INTEGER]
    const above = idAt(after - ID_SLACK_MS)
    const below = [before ?? '~', idAt(until + ID_SLACK_MS)].sort()[0] ?? '~'
    const read = (state: TaskState) => {
      const bounds = [state, above, below, after, until, limit]
      return verb === null ? ofAll.all(tenant, object, ...bounds) : ofVerb.all(tenant, object, verb, ...bounds)
    }
    const ids = VISIBLE.filter((state) => states?.includes(state) ?? true).flatMap((state) => read(state).map(({ id }) => id))
    return ids.sort().reverse().slice(0, limit)
  }
}

/** What the UUIDs v7 of a millisecond begin with (RFC 9562, section 5.7): the first and last 48-bit times stand for all beyond. */
function idAt(ms: number): string {
  const time = Math.min(Math.max(ms, 0), 2 ** 48 - 1).toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}`
}

/** A change of state, a renewal and a relay may change these: `state`, `idempotency_key`, `sweep_at`, `done_at` and `record`. */
function changing(task: Task): [string, string | null, number | null, number | null, string] {
  const isDone = FINAL.includes(task.state) && task.outbox.length === 0
  return [task.state, task.idempotency?.key ?? null, task.sweepAt, isDone ? task.endedAt : null, JSON.stringify(task)]
}

function passes(task: Task, { from, epoch, epochBelow }: TaskGuard): boolean {
  return from.includes(task.state) && (epoch === undefined || task.epoch === epoch) && (epochBelow === undefined || task.epoch < epochBelow)
}

function parse(row: Row | undefined): Task | null {
  return row ? (JSON.parse(row.record) as Task) : null
}
