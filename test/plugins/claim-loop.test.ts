/** Claim loop of a worker: where it claims, when it queries the store, and when a message counts as handled. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { openClaimLoop } from '../../plugins/worker/claim-loop.ts'
import type { Store } from '../../src/backends/store/store.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import type { TaskReady } from '../../src/domain/broker-messages.ts'
import type { Task } from '../../src/domain/task.ts'
import { openClaims } from '../../src/tasks/claims-in-progress.ts'
import { ready } from '../contracts/broker.ts'
import { hold, mediaPlan, T0, task, taskId } from '../contracts/store/acme.ts'
import { contextOf, storeOf } from '../tasks/task-context.ts'

const PLANS = ['acme/a', 'beta/b', 'gamma/c'] as const

/** `slowPlan`: claims there end once `answer` is called, and no claim is awaited for long. */
async function open(t: Test, slots: number, slowPlan?: string) {
  const store = await storeOf(t)
  for (const [n, id] of PLANS.entries()) await store.change(id, mediaPlan({}, { plan: { uid: `plan-${n}`, createdAt: T0, generation: 1 } }), T0)
  const started: string[] = []
  const timers: (() => void)[] = []
  const outcomes: string[] = []
  let queries = 0
  let isAway = false
  const slow = Promise.withResolvers<void>()
  let running = 0
  const counting: Store = {
    ...store,
    subscriptionsDue: (...args) => (queries++, store.subscriptionsDue(...args)),
    change: (async (...args: Parameters<Store['change']>) => {
      if (isAway) throw new Unavailable('store', new Error('no server'))
      if (args[0] === slowPlan) await slow.promise
      return store.change(...args)
    }) as Store['change'],
  }
  const tasks = contextOf(counting, () => T0)
  const loop = openClaimLoop({
    tasks,
    claims: openClaims(),
    slots: { isFull: () => running >= slots, hasRoom: () => true, claimable: () => ['image'], room: () => slots - running },
    start: ({ id }: Task) => {
      running++
      started.push(id)
    },
    leaseMs: 60_000,
    patience: () => (slowPlan === undefined ? new Promise(() => {}) : nextTurn()),
    later: (_ms, then) => void timers.push(then),
    isStopping: () => false,
    counted: (by, outcome) => void outcomes.push(`${by} ${outcome}`),
  })
  return {
    loop, started, outcomes, timers,
    queries: () => queries,
    answer: slow.resolve,
    away: (away: boolean) => void (isAway = away),
    free: () => void running--,
    /** Queues a task and returns the message about it. */
    async queue(n: number, subscription: string): Promise<TaskReady> {
      const tenant = subscription.split('/')[0]!
      await store.createTask(task(n, { subscription, tenant, state: 'queued', sweepAt: null }))
      await store.change(subscription, hold(taskId(n)), T0)
      return ready('image', taskId(n), { subscription, tenant })
    },
  }
}

/** Whether a promise has resolved after the loop came to rest. */
async function isDone(promise: Promise<void>): Promise<boolean> {
  let done = false
  void promise.then(() => (done = true))
  await nextTurn()
  return done
}

t.test('messages about no more plans than free slots are claimed there, without a query', async (t) => {
  const worker = await open(t, 2)
  const messages = [await worker.queue(1, PLANS[0]), await worker.queue(2, PLANS[1])]
  await Promise.all(messages.map(worker.loop.received))
  t.same(worker.started.toSorted(), [taskId(1), taskId(2)])
  t.equal(worker.queries(), 0)
  t.same(worker.outcomes, ['message started', 'message started'])
})

t.test('with messages about more plans than free slots the store is queried, and the rest stays unhandled until there are slots', async (t) => {
  const worker = await open(t, 2)
  const messages: TaskReady[] = []
  for (const [n, plan] of PLANS.entries()) messages.push(await worker.queue(n, plan))
  const handled = messages.map(worker.loop.received)
  await worker.loop.done()
  t.equal(worker.started.length, 2)
  t.ok(worker.queries() > 0)
  t.notOk(worker.loop.takes('image'), 'it is full')
  worker.free()
  worker.loop.search()
  await worker.loop.done()
  t.equal(worker.started.length, 3)
  worker.free()
  worker.loop.search()
  await Promise.all(handled)
  t.equal(worker.started.length, 3, 'the query found nothing, and every message is handled')
})

t.test('a stale, doubled or forged message is handled by a claim that finds nothing', async (t) => {
  const worker = await open(t, 4)
  const message = await worker.queue(1, PLANS[0])
  await worker.loop.received(message)
  await Promise.all([message, message, ready('image', 'any', { subscription: 'acme/none' }), ready('image', taskId(1), { subscription: PLANS[2], tenant: 'gamma' })].map(worker.loop.received))
  t.same(worker.started, [taskId(1)])
  t.equal(worker.queries(), 0)
  t.same([...new Set(worker.outcomes)], ['message started', 'message none'])
})

t.test('the task that runs is the oldest of the plan, whichever the message names', async (t) => {
  const worker = await open(t, 1)
  await worker.queue(1, PLANS[0])
  await worker.loop.received(await worker.queue(2, PLANS[0]))
  t.same(worker.started, [taskId(1)])
})

t.test('a message is not handled while the store does not answer, and is once it does', async (t) => {
  const worker = await open(t, 2)
  const message = await worker.queue(1, PLANS[0])
  worker.away(true)
  const handled = worker.loop.received(message)
  await worker.loop.done()
  t.notOk(await isDone(handled))
  t.equal(worker.timers.length, 1)
  worker.away(false)
  worker.timers.shift()?.()
  await handled
  t.same(worker.started, [taskId(1)])
})

t.test('a worker with thousands of unhandled messages takes no more, and a message of another type is handled at once', async (t) => {
  const worker = await open(t, 1)
  worker.away(true)
  const message = await worker.queue(1, PLANS[0])
  for (let n = 1; n < 5000; n++) void worker.loop.received(message)
  t.ok(worker.loop.takes('image'), 'what a burst has left is received at once')
  void worker.loop.received(message)
  t.notOk(worker.loop.takes('image'))
  await worker.loop.received({ type: 'webhook.due', kind: 'webhook', tenant: 'acme', task: null, key: 'acme' })
  t.pass()
})

t.test('while a claim is slow, messages about plans with nothing due are handled by one query', async (t) => {
  const worker = await open(t, 2, PLANS[0])
  const handled = worker.loop.received(ready('image', 'any', { subscription: PLANS[0] }))
  await worker.loop.done()
  t.notOk(await isDone(handled))
  await Promise.all(['acme/x', 'acme/y', 'acme/z'].map((subscription) => worker.loop.received(ready('image', 'any', { subscription }))))
  await worker.loop.done()
  t.equal(worker.queries(), 1)
  worker.answer()
  await handled
})
