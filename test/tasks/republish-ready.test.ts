/** Messages about tasks that stay ready: their times, keys and traces. */
import t, { type Test } from 'tap'
import type { Store } from '../../src/backends/store/store.ts'
import { partitionKey, type Message, type TaskReady } from '../../src/domain/broker-messages.ts'
import { cancel } from '../../src/tasks/run-outcome.ts'
import { openRepublisher } from '../../src/tasks/republish-ready.ts'
import { hold, mediaPlan, T0, task, taskId } from '../contracts/store/acme.ts'
import { contextOf, storeOf } from './task-context.ts'

const PLAN = 'acme/studio'
const KINDS = ['image', 'video', 'music']

async function open(t: Test, maxConcurrentTasks = 4) {
  const store = await storeOf(t)
  const messages: TaskReady[] = []
  const publish = (message: Message) => void (message.type === 'task.ready' && messages.push(message))
  const context = contextOf(store, () => T0, { publish })
  await allow(store, maxConcurrentTasks, 1)
  const taken = () => messages.splice(0)
  return { store, context, taken, republisher: openRepublisher(context, KINDS) }
}

/** Applies the plan with so many tasks at once. */
async function allow(store: Store, maxConcurrentTasks: number, generation: number): Promise<void> {
  const plan = mediaPlan()
  const media = plan.terms.media && { ...plan.terms.media, maxConcurrentTasks }
  await store.change(PLAN, { ...plan, plan: { ...plan.plan, generation }, terms: { ...plan.terms, media } }, T0)
}

async function queue(store: Store, n: number): Promise<void> {
  await store.createTask(task(n, { state: 'queued', sweepAt: null }))
  await store.change(PLAN, hold(taskId(n)), T0)
}

const claim = (store: Store, id: string) => store.change(PLAN, { op: 'claim', claim: id, kinds: KINDS }, T0)

t.test('a task that stays ready is published again after a second, then after 2, 4, … up to 60 seconds, under other keys', async (t) => {
  const { store, republisher, taken } = await open(t)
  await queue(store, 1)
  const published: number[] = []
  const keys = new Set<string>()
  for (let second = 0; second <= 190; second++) {
    await republisher.pass(second * 1000)
    for (const { task, key } of taken()) {
      t.equal(task, taskId(1))
      published.push(second)
      keys.add(key)
    }
  }
  t.same(published, [1, 3, 7, 15, 31, 63, 123, 183])
  t.equal(keys.size, published.length)
  t.notOk(keys.has(partitionKey(PLAN, taskId(1), 4)))
})

t.test('a task that was claimed is not published again, and a later one after a second anew', async (t) => {
  const { store, republisher, taken } = await open(t)
  await queue(store, 1)
  for (const second of [0, 1, 3]) await republisher.pass(second * 1000)
  t.equal(taken().length, 2)
  await claim(store, 'claim-1')
  await republisher.pass(8_000)
  await queue(store, 2)
  await republisher.pass(9_000)
  t.same(taken(), [])
  await republisher.pass(10_000)
  t.match(taken(), [{ task: taskId(2), subscription: PLAN, tenant: 'acme', object: 'generation', kind: 'image' }])
})

t.test('as many tasks are published as may run, and more once the plan allows it', async (t) => {
  const { store, republisher, taken } = await open(t, 1)
  for (const n of [1, 2, 3]) await queue(store, n)
  await claim(store, 'claim-1')
  for (const second of [0, 1, 2]) await republisher.pass(second * 1000)
  t.same(taken(), [], 'the only slot of the plan is taken')
  await allow(store, 2, 2)
  for (const second of [3, 4]) await republisher.pass(second * 1000)
  t.same(taken().map((message) => message.task), [taskId(2)])
  await allow(store, 10, 3)
  for (const second of [5, 6]) await republisher.pass(second * 1000)
  t.same(taken().map((message) => message.task), [taskId(2), taskId(3)])
})

t.test('the end of a task publishes the next one of its plan, when one more may run', async (t) => {
  const { store, context, taken } = await open(t, 1)
  for (const n of [1, 2]) await queue(store, n)
  await cancel(context, task(1, { state: 'queued', sweepAt: null }))
  t.match(taken(), [{ task: taskId(2), attempt: Number }])
  await claim(store, 'claim-1')
  await queue(store, 3)
  await cancel(context, task(3, { state: 'queued', sweepAt: null }))
  t.same(taken(), [], 'the second one runs')
})

t.test('a plan has half as many keys as tasks that may run at once', async (t) => {
  const keysOf = (maxConcurrentTasks: number) => new Set(Array.from({ length: 500 }, (_, n) => partitionKey(PLAN, taskId(n), maxConcurrentTasks))).size
  t.same([1, 2, 3, 4, 7, 100].map(keysOf), [1, 1, 2, 2, 4, 50])
})
