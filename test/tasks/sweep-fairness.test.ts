/** Sweeps of due tasks beside the backlog of one tenant, in passes and tasks read: its length delays nobody else. */
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import t, { type Test } from 'tap'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import { holdsFrom } from '../../src/domain/subscription/holds.ts'
import type { Hold } from '../../src/domain/subscription/subscription.ts'
import type { Task } from '../../src/domain/task.ts'
import type { SweepTurns } from '../../src/tasks/due-tasks.ts'
import { sweepTasks } from '../../src/tasks/recovery-sweeps.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { hold, mediaPlan, T0, task, taskId } from '../contracts/store/acme.ts'

const HOUR_MS = 3_600_000
const NOW = T0 + HOUR_MS
const BACKLOG = 'acme/studio'

type Opened = { store: Store; add(tasks: Task[]): void; readTasks(): number; pass(): Promise<void> }

/** A store with a subscription `<tenant>/studio` for each tenant, and a sweep that goes on from pass to pass. */
async function open(t: Test, tenants: string[]): Promise<Opened> {
  const file = join(t.testdir(), 'tollgate.db')
  const store = await openStore(`sqlite:${file}`)
  const raw = new DatabaseSync(file)
  t.teardown(() => raw.close())
  t.teardown(() => store.close())
  for (const [n, tenant] of tenants.entries()) await store.change(`${tenant}/studio`, mediaPlan({}, { plan: { uid: `plan-${n}`, createdAt: T0, generation: 1 } }), T0)
  let read = 0
  const tasksDue: Store['tasksDue'] = async (...args) => {
    const lists = await store.tasksDue(...args)
    read += lists.flat().length
    return lists
  }
  const quiet = () => {}
  const log = { info: quiet, warn: quiet, error: quiet }
  const turns: SweepTurns = new Map()
  const context = { store: { ...store, tasksDue, subscription: withHolds(store) }, files: {}, clock: () => NOW, uuid: () => '', random: () => 0, publish: quiet, moved: quiet, link: () => '', linkedFile: () => null, resultMs: 1, log } as unknown as TaskContext
  return { store, add: (tasks) => insert(raw, tasks), readTasks: () => read, pass: async () => void (await sweepTasks(context, undefined, turns)) }
}

/** The record of the backlog holds something for any task, without the writes of so many holds. */
function withHolds(store: Store): Store['subscription'] {
  return async (id) => {
    const record = await store.subscription(id)
    if (id !== BACKLOG || !record?.media) return record
    const any: Hold = { period: 0, amount: 1, kind: 'image', keyId: 'key-1', epoch: 1, run: null, readyAt: 0, at: T0 }
    const holds = holdsFrom(Array.from({ length: 200 }, (_, n): [string, Hold] => [taskId(n), any]))
    return { ...record, media: { ...record.media, holds } }
  }
}

function insert(raw: DatabaseSync, tasks: Task[]): void {
  const statement = raw.prepare(`INSERT INTO tasks (id, tenant, object, kind, created_at, state, idempotency_key, sweep_at, done_at, record) VALUES (?, ?, ?, ?, ?, ?, NULL, ?, NULL, ?)`)
  raw.exec('BEGIN')
  for (const one of tasks) statement.run(one.id, one.tenant, one.object, one.kind, one.createdAt, one.state, one.sweepAt, JSON.stringify(one))
  raw.exec('COMMIT')
}

const of = (tenant: string, n: number, facts: Partial<Task>): Task => task(n, { tenant, subscription: `${tenant}/studio`, sweepAt: T0, ...facts })
const lost = { state: 'processing', epoch: 1, attempts: 1, startedAt: T0 } as const
const lostLast = { ...lost, sweepAt: NOW } as const

for (const many of [1_000, 20_000]) {
  t.test(`${many} queued tasks of one tenant do not delay the lost lease of another by a pass`, async (t) => {
    const { store, add, pass, readTasks } = await open(t, ['acme', 'beta'])
    add(Array.from({ length: many }, (_, n) => of('acme', n, { state: 'queued' })))
    await store.createTask(of('beta', many, lostLast))
    await store.change('beta/studio', hold(taskId(many)), T0)
    await pass()
    t.equal((await store.task('beta', taskId(many)))?.state, 'queued')
    t.ok(readTasks() <= 101, `${readTasks()} tasks were read`)
  })
}

t.test('ten thousand lost leases of one tenant, and hundreds of ten others, delay that of another by two passes', async (t) => {
  const others = Array.from({ length: 10 }, (_, n) => `busy-${n}`)
  const { store, add, pass } = await open(t, ['acme', ...others, 'zeta'])
  add(Array.from({ length: 10_000 }, (_, n) => of('acme', n, lost)))
  add(others.flatMap((tenant, at) => Array.from({ length: 300 }, (_, n) => of(tenant, 20_000 + at * 1000 + n, lost))))
  await store.createTask(of('zeta', 90_000, lostLast))
  const passes = async (): Promise<number> => {
    for (let count = 1; count < 20; count++) {
      await pass()
      if ((await store.task('zeta', taskId(90_000)))?.state === 'queued') return count
    }
    return Infinity
  }
  t.equal(await passes(), 3)
})

t.test('a tenant alone has the whole pass', async (t) => {
  const { store, add, pass } = await open(t, ['acme'])
  add(Array.from({ length: 150 }, (_, n) => of('acme', n, lost)))
  await pass()
  t.match(await store.openTasks(), [{ state: 'processing', count: 50 }, { state: 'queued', count: 100 }])
})
