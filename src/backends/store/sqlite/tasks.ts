/** Tasks in SQLite: JSON records with the columns that indexes use. Writes; `task-queries.ts` has the reads. */
import { FINAL, passes, type Task, type TaskGuard } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import type { Database } from './database.ts'
import type { Deliveries } from './deliveries.ts'
import type { EventLog } from './event-log.ts'

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
    record TEXT NOT NULL,
    -- As clients see it.
    status TEXT GENERATED ALWAYS AS (
      CASE WHEN state = 'settling' OR state = 'queued' AND json_extract(record, '$.startedAt') IS NOT NULL THEN 'processing' ELSE state END
    ) VIRTUAL
  ) STRICT;
  CREATE UNIQUE INDEX tasks_by_key ON tasks (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;
  CREATE INDEX tasks_listed ON tasks (tenant, object, status, id, created_at);
  CREATE INDEX tasks_listed_by_verb ON tasks (tenant, object, verb, status, id, created_at);
  CREATE INDEX tasks_due ON tasks (state, tenant, sweep_at) WHERE sweep_at IS NOT NULL;
  CREATE INDEX tasks_open ON tasks (state, verb) WHERE state IN ('pending', 'queued', 'processing', 'settling');
  CREATE INDEX tasks_done ON tasks (done_at) WHERE done_at IS NOT NULL;
`

/** Migration: the kind or operation of a task, and of its price, is its `kind`. */
export const taskKinds = `
  ALTER TABLE tasks RENAME COLUMN verb TO kind;
  DROP INDEX tasks_listed_by_verb;
  CREATE INDEX tasks_listed_by_kind ON tasks (tenant, object, kind, status, id, created_at);
  UPDATE tasks SET record = json_set(json_remove(record, '$.verb', '$.price.verb'), '$.kind', kind, '$.price.kind', record ->> '$.price.verb');
`

type Verbs = 'createTask' | 'moveTask' | 'renewTask' | 'relay' | 'removeTasks'

export function openTasks(database: Database, deliveries: Deliveries, log: EventLog): Pick<Store, Verbs> {
  const insert = database.prepare(
    `INSERT INTO tasks (tenant, object, kind, created_at, state, idempotency_key, sweep_at, done_at, record, id)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
  )
  const update = database.prepare('UPDATE tasks SET state = ?, idempotency_key = ?, sweep_at = ?, done_at = ?, record = ? WHERE id = ?')
  const byId = database.records<Task>('SELECT record FROM tasks WHERE id = ?')
  const byKey = database.records<Task>('SELECT record FROM tasks WHERE tenant = ? AND idempotency_key = ?')
  const done = database.prepare<{ id: string }>('SELECT id FROM tasks WHERE done_at < ? ORDER BY done_at LIMIT ?')
  const remove = database.prepare('DELETE FROM tasks WHERE id = ?')

  /** Read-modify-write in one transaction; writes nothing when `next` returns null. */
  function edit(id: string, next: (task: Task) => Task | null): Promise<Task | null> {
    return database.write(() => {
      const found = byId.get(id)
      const task = found && next(found)
      if (task) update.run(...changing(task), id)
      return task
    })
  }

  return {
    createTask: (task) =>
      database.write(() => {
        const { id, tenant, object, kind, createdAt, idempotency } = task
        const created = insert.run(tenant, object, kind, createdAt, ...changing(task), id)
        const stored = created ? null : (byId.get(id) ?? byKey.get(tenant, idempotency?.key ?? null))
        return stored ? { outcome: 'existing', task: stored } : { outcome: 'created', task }
      }),
    moveTask: (id, guard, to, facts) => edit(id, (task) => (passes(task, guard) ? { ...task, ...facts, state: to } : null)),
    renewTask: async (id, epoch, progress, sweepAt) => {
      const guard: TaskGuard = { from: ['processing'], epoch }
      const renew = (task: Task) => ({ ...task, progress: Math.max(task.progress, progress), sweepAt })
      return (await edit(id, (task) => (passes(task, guard) ? renew(task) : null))) ? 'ok' : 'lost'
    },
    relay: (id, made, events, end) =>
      edit(id, (task) => {
        if (end && task.state !== 'settling') return null
        deliveries.add(made)
        log.append(events)
        return { ...task, ...end?.facts, state: end?.state ?? task.state, outbox: [], sweepAt: null, eventsLogged: true }
      }),
    removeTasks: (before, limit) =>
      database.write(() => {
        const old = done.all(before, limit)
        for (const { id } of old) {
          deliveries.remove(id)
          remove.run(id)
        }
        return old.length
      }),
  }
}

/** `state`, `idempotency_key`, `sweep_at`, `done_at` and `record`: the columns that change after the creation. */
function changing(task: Task): [string, string | null, number | null, number | null, string] {
  const isDone = FINAL.includes(task.state) && task.outbox.length === 0
  return [task.state, task.idempotency?.key ?? null, task.sweepAt, isDone ? task.endedAt : null, JSON.stringify(task)]
}
