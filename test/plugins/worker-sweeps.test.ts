import { mock } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { startSweeps } from '../../plugins/worker/sweeps.ts'
import type { Files } from '../../src/files/files.ts'
import type { Store } from '../../src/store/store.ts'
import type { TaskDoors } from '../../src/tasks/doors.ts'

const COUNTS = [{ state: 'queued', verb: 'image', count: 3 } as const]
const SILENT = { info() {}, warn() {}, error() {} }

t.test('how many tasks wait is told by the worker whose turn it is to sweep; the others forget what they knew', async (t) => {
  mock.timers.enable({ apis: ['setInterval'] })
  t.teardown(() => mock.timers.reset())
  const turns = [true, false, true]
  const told: unknown[] = []
  const store = {
    takeLease: async (name: string) => name === 'sweep-tasks' && turns.shift() === true,
    tasksDue: async () => [],
    openTasks: async () => COUNTS,
  } as unknown as Store
  const tasks = { store, clock: () => 0, log: SILENT } as unknown as TaskDoors
  const stop = startSweeps({ tasks, files: {} as Files, owner: 'one', taskMs: 1, swept() {}, open: (counts) => void told.push(counts), log: SILENT as never })
  for (let second = 1; second <= 3; second++) {
    mock.timers.tick(1_000)
    while (told.length < second) await nextTurn()
    await nextTurn()
  }
  await stop()
  t.same(told, [COUNTS, [], COUNTS])
})
