import { mock } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { startSweeps } from '../../plugins/worker/sweep-loops.ts'
import type { Files } from '../../src/backends/files/files.ts'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { keyVersion, T0, task } from '../contracts/store/acme.ts'

const COUNTS = [{ state: 'queued', verb: 'image', count: 3 } as const]
const SILENT = { info() {}, warn() {}, error() {} }

t.test('only the worker that holds the sweep lease reports open tasks; the others clear their counts', async (t) => {
  mock.timers.enable({ apis: ['setInterval'] })
  t.teardown(() => mock.timers.reset())
  const turns = [true, false, true]
  const reported: unknown[] = []
  const store = {
    takeLease: async (name: string) => name === 'sweep-tasks' && turns.shift() === true,
    tasksDue: async () => [],
    openTasks: async () => COUNTS,
  } as unknown as Store
  const tasks = { store, clock: () => 0, log: SILENT } as unknown as TaskContext
  const stop = startSweeps({ tasks, files: {} as Files, owner: 'one', taskMs: 1, eventMs: 1, swept() {}, open: (counts) => void reported.push(counts), log: SILENT as never })
  for (let second = 1; second <= 3; second++) {
    mock.timers.tick(1_000)
    while (reported.length < second) await nextTurn()
    await nextTurn()
  }
  await stop()
  t.same(reported, [COUNTS, [], COUNTS])
})

t.test('the sealed key of an ended key is removed once no task needs it to sign webhooks', async (t) => {
  mock.timers.enable({ apis: ['setInterval'] })
  t.teardown(() => mock.timers.reset())
  const minute = 60_000
  const store = await openStore(`sqlite:${t.testdir()}/tollgate.db`)
  t.teardown(() => store.close())
  let now = T0
  let swept = 0
  const files = { sweep: async () => (swept++, 0) } as unknown as Files
  const tasks = { store, clock: () => now, log: SILENT } as unknown as TaskContext
  const stop = startSweeps({ tasks, files, owner: 'one', taskMs: 60 * minute, eventMs: 60 * minute, swept() {}, open() {}, log: SILENT as never })
  t.teardown(stop)
  const isSealed = async (): Promise<boolean> => {
    const before = swept
    mock.timers.tick(minute)
    while (swept === before) await nextTurn()
    return (await store.keyVersions('k1'))[0]?.sealed !== null
  }
  await store.mintKey(keyVersion('k1', 0, { state: 'active' }))
  await store.createTask(task(1, { state: 'queued', createdAt: T0 + 8 * minute }))
  await store.setKey('k1-0', { state: 'deleted', endedAt: T0 }, [])
  for (const passed of [30, 90]) {
    now = T0 + passed * minute
    t.ok(await isSealed(), `a task that may have been asked for with it is there after ${passed} minutes`)
  }
  await store.moveTask(task(1).id, { from: ['queued'] }, 'failed', { endedAt: now })
  now += 59 * minute
  t.ok(await isSealed(), 'its webhook may be sent again')
  now += 2 * minute
  t.notOk(await isSealed())
})
