/** A claim whose task never started: it is queued again, and the worker of that claim is refused from then on. */
import t, { type Test } from 'tap'
import type { Task } from '../../src/domain/task.ts'
import { claimDue } from '../../src/tasks/claim-tasks.ts'
import { sweepSubscriptions } from '../../src/tasks/recovery-sweeps.ts'
import { hold, mediaPlan, T0, task, taskId } from '../contracts/store/acme.ts'
import { contextOf, storeOf } from './task-context.ts'

const ID = 'acme/studio'
const MINUTE_MS = 60_000
const LEASE = { leaseMs: MINUTE_MS, kinds: ['image'], limit: 1 }

/** A claim of its worker that has written the record, and not yet the task. */
async function abandoned(t: Test) {
  const store = await storeOf(t)
  await store.change(ID, mediaPlan(), T0)
  await store.createTask(task(1, { state: 'queued', sweepAt: null }))
  await store.change(ID, hold(taskId(1)), T0)
  const claim = await store.change(ID, { op: 'claim', claim: 'late', kinds: ['image'] }, T0)
  if (claim.outcome === 'none') throw new Error('nothing was claimed')
  const time = { now: T0 }
  const context = contextOf(store, () => time.now)
  const begin = () => store.moveTask(taskId(1), { from: ['queued'], epochBelow: claim.epoch }, 'processing', { epoch: claim.epoch })
  return { store, context, time, epoch: claim.epoch, begin }
}

t.test('the worker of an abandoned claim is refused before the task may be claimed again', async (t) => {
  const { store, context, time, epoch, begin } = await abandoned(t)
  const order: string[] = []
  const spied = { ...store, moveTask: (...args: Parameters<typeof store.moveTask>) => (order.push('fence'), store.moveTask(...args)), change: ((...args: Parameters<typeof store.change>) => (order.push(args[1].op), store.change(...args))) as typeof store.change }
  time.now = T0 + MINUTE_MS
  t.match(await sweepSubscriptions({ ...context, store: spied }), { unused_claim: 1 })
  t.same(order, ['fence', 'requeue'])
  t.match(await store.task('acme', taskId(1)), { state: 'queued', epoch })
  t.equal(await begin(), null, 'the late worker')
  const started: Task[] = []
  t.match(await claimDue(context, { ...LEASE, start: (one) => void started.push(one) }), { started: 1 })
  t.match(started, [{ id: taskId(1), state: 'processing', epoch: epoch + 1 }])
  t.equal(await begin(), null, 'nor beside the run')
})

t.test('a claim that is younger than a minute, or whose task has started, is left alone', async (t) => {
  const { store, context, time, epoch, begin } = await abandoned(t)
  time.now = T0 + MINUTE_MS - 1
  t.match(await sweepSubscriptions(context), { unused_claim: 0 })
  t.match(await begin(), { state: 'processing', epoch })
  time.now = T0 + 2 * MINUTE_MS
  t.match(await sweepSubscriptions(context), { unused_claim: 0 })
  t.match(await store.task('acme', taskId(1)), { state: 'processing', epoch })
})
