/** What becomes of a run, beside what `operation-crashes` and `unavailable-backends` hold. */
import t, { type Test } from 'tap'
import { balanceOf } from '../../src/domain/balance.ts'
import type { Task } from '../../src/domain/task.ts'
import { claimDue } from '../../src/tasks/claim-tasks.ts'
import { findTask } from '../../src/tasks/read-tasks.ts'
import { sweepTasks } from '../../src/tasks/recovery-sweeps.ts'
import { cancel, conclude, rememberJob, settle, type RunOutcome } from '../../src/tasks/run-outcome.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { verifyStore } from '../../src/verify/verify.ts'
import { hold, mediaPlan, T0, task, taskId } from '../contracts/store/acme.ts'
import { contextOf, storeOf } from './task-context.ts'

const ID = 'acme/studio'
const HOUR_MS = 3_600_000
const QUOTE = 100
const LEASE_MS = 60_000

/** Two tasks of a plan that runs one at a time; the first one runs. */
async function running(t: Test) {
  const store = await storeOf(t)
  await store.change(ID, mediaPlan({ maxConcurrentTasks: 1 }), T0)
  for (const n of [1, 2]) {
    await store.createTask(task(n, { state: 'queued', sweepAt: null, estimatedCost: QUOTE, cancelPercent: 30 }))
    await store.change(ID, { ...hold(taskId(n)), amount: QUOTE }, T0)
  }
  const time = { now: T0 }
  const published: unknown[] = []
  const moves = { hold: 0, capture: 0, void: 0 }
  const moved: TaskContext['moved'] = (move, _, micro) => void (moves[move] += micro)
  const publish = (message: unknown) => void published.push(message)
  const context = contextOf(store, () => time.now, { publish, moved, link: () => 'https://files.example/f' })
  const claim = async (): Promise<Task> => {
    const started: Task[] = []
    await claimDue(context, { leaseMs: LEASE_MS, kinds: ['image'], limit: 1, start: (one) => void started.push(one) })
    return started[0]!
  }
  return { store, context, time, published, moves, claim, first: await claim() }
}

t.test('a run that is put back names to the broker at once which task may run instead', async (t) => {
  for (const [made, next] of [[{ outcome: 'handed_back' }, 1], [{ outcome: 'failed', code: 'provider_error', retryable: true }, 2]] as [RunOutcome, number][]) {
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

type Running = Awaited<ReturnType<typeof running>>

/** Takes the running task away from its run: it waits again, with its provider's job. */
const PUT_BACK: Record<string, (world: Running) => Promise<unknown>> = {
  'handed back': ({ context, first }) => conclude(context, first, { outcome: 'handed_back' }),
  'put back since a backend was unavailable': ({ context, first }) => conclude(context, first, { outcome: 'unavailable' }),
  'put back for a provider that asked to wait': ({ context, first }) => conclude(context, first, { outcome: 'failed', code: 'provider_error', retryable: true, retryAfterMs: 1000 }),
  async 'taken back from a lost lease'({ context, time }) {
    time.now += LEASE_MS
    t.match(await sweepTasks(context), { lost_lease: 1 })
  },
}

for (const [how, putBack] of Object.entries(PUT_BACK)) {
  t.test(`a task that was ${how} with its job costs its share when it is canceled, by its own books and by the balance`, async (t) => {
    for (const claims of [0, 1]) {
      const world = await running(t)
      const { store, context, time, moves, first } = world
      t.equal(await rememberJob(context, first, { job: 'job-1', jobEngine: 'studio' }), 'remembered')
      await putBack(world)
      time.now += LEASE_MS
      // A claim that is written, and has not started its task yet.
      if (claims > 0) t.match(await store.change(ID, { op: 'claim', claim: 'late', kinds: ['image'] }, time.now), { outcome: 'claimed', task: first.id })
      const waiting = (await store.task('acme', first.id))!
      t.match(waiting, { state: 'queued', job: 'job-1' })
      t.match(await cancel(context, waiting), { state: 'canceled', actualCost: 30, refundAmount: 70 })
      t.match(balanceOf((await store.subscription(ID))!.media!), { burned: 30, held: QUOTE })
      t.match(moves, { capture: 30, void: 70 })
      t.same((await verifyStore(store, { now: time.now })).violations, [])
    }
  })
}

t.test('the next attempt resumes a job of which only the result is lacking, and no other', async (t) => {
  for (const [kept, job, jobEngine] of [[{ keepsJob: true }, 'job-1', 'studio'], [{}, null, null]] as const) {
    const { store, context, first } = await running(t)
    await rememberJob(context, first, { job: 'job-1', jobEngine: 'studio' })
    t.match(await conclude(context, first, { outcome: 'failed', code: 'provider_error', retryable: true, ...kept }), { outcome: 'retrying' })
    t.match(await store.task('acme', first.id), { state: 'queued', attempts: 1, job, jobEngine })
  }
})

t.test('a task that waits for another attempt without a job costs nothing when it is canceled', async (t) => {
  const { store, context, moves, time, first } = await running(t)
  await rememberJob(context, first, { job: 'job-1', jobEngine: 'studio' })
  await conclude(context, first, { outcome: 'failed', code: 'provider_error', retryable: true })
  t.match(await cancel(context, (await store.task('acme', first.id))!), { state: 'canceled', actualCost: 0, refundAmount: QUOTE })
  t.match(balanceOf((await store.subscription(ID))!.media!), { burned: 0, held: QUOTE })
  t.match(moves, { capture: 0, void: QUOTE })
  t.same((await verifyStore(store, { now: time.now })).violations, [])
})

t.test('a task whose hold is closed is shown as ended, before it is written so', async (t) => {
  const { store, context, first } = await running(t)
  const result = { file: 'f', contentType: 'image/png', bytes: 1, width: 1, height: 1, durationMs: null, expiresAt: T0 + HOUR_MS }
  await store.moveTask(first.id, { from: ['processing'] }, 'settling', { outcome: { outcome: 'completed', cost: 60, result, at: T0 + 7 }, sweepAt: T0 })
  t.match(await findTask(context, 'acme', first.id), { state: 'settling', endedAt: null })
  await store.change(ID, { op: 'close', task: first.id, actual: 60, epoch: first.epoch }, T0)
  const shown = await findTask(context, 'acme', first.id)
  t.match(shown, { state: 'completed', actualCost: 60, refundAmount: 40, progress: 100, endedAt: T0 + 7 })
  t.match(await sweepTasks(context), { settled: 1 })
  t.same(await findTask(context, 'acme', first.id), { ...shown, sweepAt: null, eventsLogged: true })
})

t.test('the sweep relays what an earlier release left in an outbox', async (t) => {
  const { store, context } = await running(t)
  const ended = { state: 'completed', endedAt: T0, sweepAt: T0, webhookUrl: 'https://hooks.example/acme' } as const
  await store.createTask(task(3, { ...ended, outbox: [{ event: 'task.completed', body: '{}' }] }))
  t.match(await sweepTasks(context), { relayed: 1 })
  t.match(await store.task('acme', taskId(3)), { state: 'completed', outbox: [], sweepAt: null, eventsLogged: true })
  t.match(await store.deliveries(taskId(3)), [{ event: 'task.completed', body: '{}', state: 'pending' }])
  t.match(await store.events('acme', 0, 0, 10), [{ event: 'task.completed', body: '{}' }])
})

t.test('deliveries to one host share slots by its port, named or not', async (t) => {
  const { store, context } = await running(t)
  const hosts = [['http://hooks.example./a', 'hooks.example:80'], ['https://hooks.example:80', 'hooks.example:80'], ['https://hooks.example:443/a', 'hooks.example'], ['https://[2606::1]/', '[2606::1]']]
  for (const [i, [webhookUrl]] of hosts.entries())
    await store.createTask(task(3 + i, { state: 'completed', endedAt: T0, sweepAt: T0, webhookUrl: webhookUrl!, outbox: [{ event: 'task.completed', body: '{}' }] }))
  t.match(await sweepTasks(context), { relayed: hosts.length })
  t.same(await Promise.all(hosts.map(async (_, i) => (await store.deliveries(taskId(3 + i)))[0]?.host)), hosts.map(([, host]) => host))
})

t.test('what a late request holds for a task that settles is given back, and is no second charge', async (t) => {
  const { store, context, moves, time, first } = await running(t)
  const settling = await store.moveTask(first.id, { from: ['processing'] }, 'settling', { outcome: { outcome: 'canceled', cost: 30 }, sweepAt: T0 })
  await store.change(ID, { op: 'close', task: first.id, actual: 30, epoch: first.epoch }, T0)
  await store.change(ID, { ...hold(first.id), amount: QUOTE }, T0)
  t.match(await settle(context, settling!), { state: 'canceled', actualCost: 30, refundAmount: 70 })
  t.match(balanceOf((await store.subscription(ID))!.media!), { burned: 30, held: QUOTE })
  t.match(moves, { capture: 0, void: QUOTE })
  t.same((await verifyStore(store, { now: time.now })).violations, [])
})
