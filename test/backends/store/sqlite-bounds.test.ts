/** Query plans and rows read by SQLite. Without statistics the plans are the same for every number of rows. */
import { DatabaseSync, type SQLInputValue } from 'node:sqlite'
import t, { type Test } from 'tap'
import { openStore, type Store } from '../../../src/backends/store/store.ts'
import type { TaskState } from '../../../src/domain/task.ts'
import { delivery, keyVersion, T0, task, taskId } from '../../contracts/store/acme.ts'

const MANY = 100_000

type Watched = { store: Store; raw: DatabaseSync; statements: Set<string>; rowsReadBy(work: () => Promise<unknown>): Promise<number> }

/** A store that records its statements and counts the rows that they return. */
async function watched(t: Test): Promise<Watched> {
  const { prepare } = DatabaseSync.prototype
  const statements = new Set<string>()
  let rows = 0
  DatabaseSync.prototype.prepare = function (this: DatabaseSync, sql: string) {
    statements.add(sql)
    const statement = prepare.call(this, sql)
    const [all, get]: ((...values: SQLInputValue[]) => unknown)[] = [statement.all.bind(statement), statement.get.bind(statement)]
    const counted = (found: unknown) => {
      rows += found === undefined ? 0 : [found].flat().length
      return found
    }
    return Object.assign(statement, {
      all: (...values: SQLInputValue[]) => counted(all?.(...values)),
      get: (...values: SQLInputValue[]) => counted(get?.(...values)),
    }) as typeof statement
  }
  const file = `${t.testdir()}/tollgate.db`
  const store = await openStore(`sqlite:${file}`).finally(() => Object.assign(DatabaseSync.prototype, { prepare }))
  const raw = new DatabaseSync(file)
  t.teardown(async () => {
    raw.close()
    await store.close()
  })
  return {
    store,
    raw,
    statements,
    async rowsReadBy(work) {
      rows = 0
      await work()
      return rows
    },
  }
}

t.test('every statement is served by an index, including its sort', async (t) => {
  const { raw, statements } = await watched(t)
  // `group_concat` orders the chunks of one record.
  const walks = [...statements].flatMap((sql) => {
    const steps = raw.prepare(`EXPLAIN QUERY PLAN ${sql}`).all() as { detail: string }[]
    return steps.map(({ detail }) => detail).filter((step) => /^SCAN (?!json_each|sqlite_schema)|TEMP B-TREE FOR (?!group_concat)/.test(step))
  })
  t.same(walks, [
    'SCAN beats USING INDEX sqlite_autoindex_beats_1', // One row per process.
    'SCAN keys USING INDEX keys_to_tell', // A partial index, read up to a limit.
    'SCAN usage_records USING INDEX usage_records_unpublished', // Likewise.
    'SCAN usage_floor', // One row.
  ])
  t.ok(statements.size > 40)
})

/** A table of `n` from 1. */
const COUNT = `WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < ${MANY})`

t.test('a hundred thousand rotations of a key are not read again', async (t) => {
  const { store, raw, rowsReadBy } = await watched(t)
  const version = JSON.stringify(keyVersion('k1', 0, { state: 'deleted' }))
  raw
    .prepare(
      `${COUNT} INSERT INTO keys SELECT 'k1-' || n, 'k1', n, 'hash ' || n, 'acme/main', n = 5, 0, json_set(?, '$.id', 'k1-' || n, '$.revision', n), NULL FROM count`,
    )
    .run(version)
  t.equal(await rowsReadBy(() => store.keyVersions('k1')), 17)
  const plan = raw.prepare('EXPLAIN QUERY PLAN SELECT record FROM keys WHERE alive = 1 AND id > ? AND id < ? AND +key_id = ?').all()
  t.match(plan, [{ detail: 'SEARCH keys USING INDEX keys_alive (id>? AND id<?)' }])
})

t.test('a hundred thousand deliveries to a dead receiver do not slow down the others', async (t) => {
  const { store, raw, rowsReadBy } = await watched(t)
  const dead = JSON.stringify(delivery(0, { host: 'dead.example', nextAttemptAt: T0 - MANY }))
  raw
    .prepare(
      `${COUNT} INSERT INTO deliveries SELECT 'dead-' || n, 'dead-' || n, 'acme', 'dead.example', ${T0 - MANY} + n, NULL,
       json_set(?, '$.id', 'dead-' || n, '$.nextAttemptAt', ${T0 - MANY} + n) FROM count`,
    )
    .run(dead)
  raw.exec(`INSERT INTO delivery_lanes VALUES ('acme', 'dead.example', ${T0 - MANY + 1})`)
  raw.exec(`INSERT INTO delivery_tenants VALUES ('acme', ${T0 - MANY + 1})`)
  await Promise.all(
    Array.from({ length: 40 }, async (_, n) => {
      await store.createTask(task(n, { state: 'completed' }))
      await store.relay(taskId(n), [delivery(n, { host: `h${n % 4}.example`, tenant: `t${n % 3}` })], [])
    }),
  )
  const caps = { limit: 128, perHost: 8, perTenant: 32, perQueue: 8 }
  const claimed: string[] = []
  const claimAll = () => rowsReadBy(async () => claimed.push(...(await store.claimDeliveries(T0, T0 + 1000, caps)).map(({ host }) => host)))
  // Rows per claimed delivery: the delivery, and its queue before and after.
  t.ok((await claimAll()) <= 5 * 40)
  t.equal(claimed.filter((host) => host === 'dead.example').length, 8)
  t.equal(claimed.length, 5 * 8)
  t.ok((await claimAll()) <= 5 * 8, 'a second claim reads the leases, and finds every receiver full')
  t.equal(claimed.length, 5 * 8)
})

t.test('an empty delivery queue is removed', async (t) => {
  const { store, raw } = await watched(t)
  await store.createTask(task(1, { state: 'completed' }))
  await store.relay(taskId(1), [delivery(1)], [])
  const queues = () => ['delivery_lanes', 'delivery_tenants'].map((table) => raw.prepare(`SELECT * FROM ${table}`).all().length)
  t.same(queues(), [1, 1])
  const [claimed] = await store.claimDeliveries(T0, T0 + 1000, { limit: 1, perHost: 1, perTenant: 1, perQueue: 1 })
  const attempt = { number: 1, at: T0, durationMs: 1, statusCode: 200, error: null, responsePrefix: '' }
  await store.recordAttempt(delivery(1).id, claimed?.epoch ?? 0, attempt, { state: 'delivered', nextAttemptAt: null }, null)
  t.same(queues(), [0, 0])
})

t.test('a hundred thousand tasks do not slow down a list, a sweep, a count or a clean-up', async (t) => {
  const { store, raw, rowsReadBy } = await watched(t)
  const minute = 60_000
  raw
    .prepare(
      `${COUNT} INSERT INTO tasks
       SELECT printf('%08x-%04x-7000-8000-000000000000', at >> 16, at & 65535), 'acme', 'generation', 'image', at,
         iif(n % 2, 'queued', 'completed'), NULL, at, iif(n % 2, NULL, at), ?
       FROM (SELECT n, ${T0} + n * ${minute} AS at FROM count)`,
    )
    .run(JSON.stringify(task(0)))

  const filter = { object: 'generation', kind: null, status: null, createdAfter: null, createdBefore: null } as const
  const list = async (facts: object) => {
    let found = 0
    const rows = await rowsReadBy(async () => (found = (await store.tasks('acme', { ...filter, ...facts }, null, 50)).length))
    t.equal(found, 50)
    return rows
  }
  t.ok((await list({})) <= 3 * 50)
  t.ok((await list({ kind: 'image', status: 'completed' })) <= 2 * 50)
  t.ok((await list({ createdBefore: T0 + 1000 * minute })) <= 3 * 50)
  const due = (states: TaskState[], perTenant: number) => store.tasksDue(T0 + MANY * minute, [{ states, after: '', limit: 100, perTenant }])
  t.ok((await rowsReadBy(() => due(['queued'], 100))) <= 102)
  t.ok((await rowsReadBy(() => due(['queued'], 20))) <= 22, 'the rest of the backlog is passed over in one step')
  t.equal(await rowsReadBy(() => due(['processing'], 20)), 0, 'nor does it stand in the list of another reason')
  // The group, and its oldest task.
  t.equal(await rowsReadBy(() => store.openTasks()), 2)
  t.same(await store.openTasks(), [{ state: 'queued', kind: 'image', count: MANY / 2, oldestAt: T0 + minute }])
  t.equal(await rowsReadBy(() => store.removeTasks(T0 + MANY * minute, 500)), 500)
})

t.test('of a hundred thousand due subscriptions, only the requested sixteen are read', async (t) => {
  const { store, raw, rowsReadBy } = await watched(t)
  raw.exec(`${COUNT} INSERT INTO subscriptions_due SELECT 'acme/' || n, iif(n % 2, 'image', 'video'), ${T0}, ${T0} - n FROM count`)
  let due: string[] = []
  t.equal(await rowsReadBy(async () => (due = await store.subscriptionsDue(['image', 'video', 'music'], T0, 16))), 32)
  t.same(due, Array.from({ length: 16 }, (_, i) => `acme/${MANY - i}`))
})
