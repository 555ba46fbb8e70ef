/** Duration of the worker's periodic sweeps with an empty store and with many finished tasks, which the sweeps must not read. */
import { randomUUID } from 'node:crypto'
import { MongoClient } from 'mongodb'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { sweepSubscriptions, sweepTasks } from '../../src/tasks/recovery-sweeps.ts'
import type { Distributed } from '../distributed.ts'
import type { Choice } from '../stage.ts'
import { finishedTask, idAt } from '../finished-tasks.ts'
import { tenant } from '../manifests.ts'
import { median, percentile } from '../statistics.ts'
import type { Table } from '../table.ts'

const TENANTS = 20
const DAY_MS = 24 * 3600 * 1000
/** Age of the oldest finished task; the others are spread evenly. */
const AGE_MS = 30 * DAY_MS
const AT_ONCE = 2000
const TIMES = 30
/** The worker's batch size of removals. */
const REMOVED = 500
const REMOVALS = 5

type Measured = Map<string, number[]>
type Doc = Record<string, unknown> & { _id: string }

/** Runs in its own database without any other process. `finished` is the number of finished tasks in it. */
export async function sweeps({ servers }: Distributed, { finished }: Choice): Promise<Table> {
  const name = `bench-${randomUUID()}`
  const client = await new MongoClient(servers.mongodb).connect()
  const store = await openStore(`${servers.mongodb.replace(/\/$/, '')}/${name}`)
  try {
    const empty = await measure(store)
    const fillMs = await fill(store, client, name, finished)
    const full = await measure(store)
    full.set(`removing ${REMOVED} expired tasks`, await each(REMOVALS, () => store.removeTasks(Date.now() - AGE_MS / 2, REMOVED)))
    const both = (measured: Measured, what: string) => {
      const ms = measured.get(what)
      return ms ? `${median(ms).toFixed(1)} / ${percentile(ms, 1).toFixed(1)}` : ''
    }
    return {
      title: `Sweeps on MongoDB with ${finished.toLocaleString('en')} finished tasks (milliseconds, median / longest of ${TIMES})`,
      head: ['', 'empty store', 'filled'],
      rows: [...full.keys()].map((what) => [what, both(empty, what), both(full, what)]),
      note: `${TENANTS} tenants, tasks of ${AGE_MS / DAY_MS} days, filled in ${(fillMs / 1000).toFixed(0)} s.`,
    }
  } finally {
    await store.close()
    await client.db(name).dropDatabase()
    await client.close()
  }
}

/** What a worker does once a second, and every fifteen seconds; nothing is due. */
async function measure(store: Store): Promise<Measured> {
  const quiet = { info() {}, warn() {}, error() {} }
  const noFiles = {} as TaskContext['files']
  const backends: TaskContext = { store, files: noFiles, clock: Date.now, uuid: randomUUID, random: Math.random, publish() {}, moved() {}, link: () => '', linkedFile: () => null, resultMs: DAY_MS, log: quiet }
  return new Map([
    ['due tasks (every second)', await each(TIMES, () => sweepTasks(backends))],
    ['counting open tasks (every second)', await each(TIMES, () => store.openTasks())],
    ['holds and periods (every 15 s)', await each(TIMES, () => sweepSubscriptions(backends))],
    ['nothing to remove (every minute)', await each(TIMES, () => store.removeTasks(Date.now() - 2 * AGE_MS, REMOVED))],
  ])
}

async function each(times: number, work: () => Promise<unknown>): Promise<number[]> {
  const taken: number[] = []
  for (let n = 0; n < times; n++) {
    const sinceMs = performance.now()
    await work()
    taken.push(performance.now() - sinceMs)
  }
  return taken
}

/** Stores one finished task by the adapter, and the others as copies of its document. Returns the milliseconds taken. */
async function fill(store: Store, client: MongoClient, name: string, count: number): Promise<number> {
  const sinceMs = performance.now()
  const { task } = await store.createTask(finishedTask(randomUUID(), tenant(0)))
  const tasks = client.db(name).collection<Doc>('tasks')
  const model = await tasks.findOne({ _id: task.id })
  if (!model) throw new Error('the adapter stores its tasks in another collection')
  const now = Date.now()
  for (let n = 1; n < count; n += AT_ONCE) {
    const some = Array.from({ length: Math.min(AT_ONCE, count - n) }, (_, more): Doc => {
      const createdAt = Math.floor(now - AGE_MS + ((n + more) * AGE_MS) / count)
      const owner = tenant((n + more) % TENANTS)
      return { ...model, _id: idAt(createdAt), tenant: owner, subscription: `${owner}/plan`, createdAt, startedAt: createdAt + 20, endedAt: createdAt + 50 }
    })
    await tasks.insertMany(some, { ordered: false })
    if (Math.floor(n / 100_000) !== Math.floor((n + AT_ONCE) / 100_000)) process.stderr.write(`  ${n + some.length} finished tasks …\n`)
  }
  return performance.now() - sinceMs
}
