/** Task queries in SQLite: by id, by Idempotency-Key, a tenant's list, tasks due for a sweep, counts of open tasks. */
import { idRange, STATUSES, type Task, type TaskFilter } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import type { DueList, OpenTasks } from '../task-store.ts'
import type { Database } from './database.ts'

type Verbs = 'task' | 'taskWithKey' | 'tasks' | 'tasksDue' | 'oldestTask' | 'openTasks'

export function openTaskQueries(database: Database): Pick<Store, Verbs> {
  const byId = database.records<Task>('SELECT record FROM tasks WHERE id = ?')
  const ofTenant = database.records<Task>('SELECT record FROM tasks WHERE id = ? AND tenant = ?')
  const byKey = database.records<Task>('SELECT record FROM tasks WHERE tenant = ? AND idempotency_key = ?')
  const due = openDue(database)
  // The index has every rowid, which are in the order of creation.
  const open = database.prepare<Omit<OpenTasks, 'oldestAt'> & { first: number; settlingAt: number | null }>(
    `SELECT state, kind, count(*) AS count, min(rowid) AS first, min(iif(state = 'settling', record ->> '$.outcome.at', NULL)) AS settlingAt
     FROM tasks WHERE state IN ('pending', 'queued', 'processing', 'settling') GROUP BY state, kind`,
  )
  const createdAt = database.prepare<{ created_at: number }>('SELECT created_at FROM tasks WHERE rowid = ?')
  const oldest = database.records<Task>("SELECT record FROM tasks WHERE id > '' ORDER BY id LIMIT 1")
  const page = paging(database)

  return {
    task: (tenant, id) => database.read(() => ofTenant.get(id, tenant)),
    taskWithKey: (tenant, key) => database.read(() => byKey.get(tenant, key)),
    tasks: (tenant, filter, before, limit) => database.read(() => page(tenant, filter, before, limit).flatMap((id) => byId.all(id))),
    tasksDue: (now, lists) => database.read(() => lists.map((list) => due(now, list))),
    oldestTask: () => database.read(() => oldest.get()?.createdAt ?? null),
    openTasks: () =>
      database.read(() =>
        open.all().map(({ state, kind, count, first, settlingAt }) => {
          return { state, kind, count, oldestAt: settlingAt ?? createdAt.get(first)?.created_at ?? 0 }
        }),
      ),
  }
}

/** The tasks of a list: one step to each tenant with a task in one of its states, whatever their backlogs. */
function openDue(database: Database): (now: number, list: DueList) => Task[] {
  const next = database.prepare<{ tenant: string; sweep_at: number }>(
    'SELECT tenant, sweep_at FROM tasks WHERE state = ? AND tenant > ? AND sweep_at IS NOT NULL ORDER BY tenant, sweep_at LIMIT 1',
  )
  const ofTenant = database.records<Task>(
    'SELECT record FROM tasks WHERE state = ? AND tenant = ? AND sweep_at <= ? ORDER BY sweep_at LIMIT ?',
  )

  return (now, { states, after, limit, perTenant }) => {
    const found: Task[] = []
    for (let from = after; found.length < limit;) {
      const firsts = states.flatMap((state) => next.all(state, from))
      const tenant = firsts.map((first) => first.tenant).sort()[0]
      if (tenant === undefined) break
      from = tenant
      if (!firsts.some((first) => first.tenant === tenant && first.sweep_at <= now)) continue
      const most = Math.min(perTenant, limit - found.length)
      const own = states.flatMap((state) => ofTenant.all(state, tenant, now, most))
      found.push(...own.sort((a, b) => (a.sweepAt ?? 0) - (b.sweepAt ?? 0)).slice(0, most))
    }
    return found
  }
}

/** The ids of a page: the newest of each status, in index order, merged. */
function paging(database: Database): (tenant: string, filter: TaskFilter, before: string | null, limit: number) => string[] {
  const range = 'status = ? AND id >= ? AND id < ? AND created_at > ? AND created_at < ? ORDER BY id DESC LIMIT ?'
  const ofAll = database.prepare<{ id: string }>(`SELECT id FROM tasks WHERE tenant = ? AND object = ? AND ${range}`)
  const ofKind = database.prepare<{ id: string }>(`SELECT id FROM tasks WHERE tenant = ? AND object = ? AND kind = ? AND ${range}`)

  return (tenant, filter, before, limit) => {
    const { object, kind, status, createdAfter, createdBefore } = filter
    const bounds = [...idRange(filter, before), createdAfter ?? -1, createdBefore ?? Number.MAX_SAFE_INTEGER, limit]
    const ids = (status === null ? STATUSES : [status]).flatMap((one) =>
      kind === null ? ofAll.all(tenant, object, one, ...bounds) : ofKind.all(tenant, object, kind, one, ...bounds),
    )
    return ids
      .map(({ id }) => id)
      .sort()
      .toReversed()
      .slice(0, limit)
  }
}
