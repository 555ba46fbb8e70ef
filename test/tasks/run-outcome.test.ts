/** What becomes of a run, beside what `operation-crashes` and `unavailable-backends` hold. */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openStore } from '../../src/backends/store/store.ts'
import type { Task } from '../../src/domain/task.ts'
import { claimDue } from '../../src/tasks/claim-tasks.ts'
import { conclude, type Made } from '../../src/tasks/run-outcome.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { hold, mediaPlan, T0, task, taskId } from '../contracts/store/acme.ts'

const ID = 'acme/studio'
const HOUR_MS = 3_600_000

/** Two tasks of a plan that runs one at a time; the first one runs. */
async function running(t: Test) {
  const store = await openStore(`sqlite:${join(t.testdir(), 'tollgate.db')}`)
  t.teardown(() => store.close())
  await store.change(ID, mediaPlan({ maxConcurrentTasks: 1 }), T0)
  for (const n of [1, 2]) {
    await store.createTask(task(n, { state: 'queued', sweepAt: null }))
    await store.change(ID, hold(taskId(n)), T0)
  }
  const time = { now: T0 }
  const quiet = () => {}
  const published: unknown[] = []
  let ids = 0
  const log = { info: quiet, warn: quiet, error: quiet }
  const publish = (message: unknown) => void published.push(message)
  const context = { store, clock: () => time.now, uuid: () => `claim-${ids++}`, random: () => 0, publish, moved: quiet, log } as unknown as TaskContext
  const claim = async (): Promise<Task> => {
    const started: Task[] = []
    await claimDue(context, { leaseMs: 60_000, kinds: ['image'], limit: 1, start: (one) => void started.push(one) })
    return started[0]!
  }
  return { store, context, time, published, claim, first: await claim() }
}

t.test('a run that is put back names to the broker at once which task may run instead', async (t) => {
  for (const [made, next] of [[{ outcome: 'handed_back' }, 1], [{ outcome: 'failed', code: 'provider_error', retryable: true }, 2]] as [Made, number][]) {
    const { context, published, first } = await running(t)
    published.length = 0
    t.match(await conclude(context, first, made), { outcome: made.outcome === 'failed' ? 'retrying' : 'handed_back' })
    t.match(published, [{ type: 'task.ready', task: taskId(next) }])
  }
})

t.test('a provider may ask to wait for an hour since the first run without an attempt, and no longer', async (t) => {
  const busy = { outcome: 'failed', code: 'provider_error', retryable: true, retryAfterMs: HOUR_MS / 2 } as const
  const { store, context, time, claim, first } = await running(t)
  t.match(await conclude(context, first, busy), { outcome: 'retrying' })
  t.match(await store.task('acme', first.id), { state: 'queued', attempts: 0 })
  // The other task first, which may run meanwhile.
  await conclude(context, await claim(), { outcome: 'failed', code: 'provider_rejected', retryable: false })
  time.now += HOUR_MS / 2 + 2_000
  const again = await claim()
  t.equal(again.id, first.id)
  t.match(await conclude(context, again, busy), { outcome: 'retrying' })
  t.match(await store.task('acme', first.id), { state: 'queued', attempts: 1 }, 'it counts: half an hour more is above an hour')
})
