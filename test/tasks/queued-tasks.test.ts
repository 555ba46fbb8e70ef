/** Queued tasks that nobody can run: without a hold, or of a kind that no engine or worker takes. */
import t, { type Test } from 'tap'
import { openServedElsewhere } from '../../plugins/worker/served-elsewhere.ts'
import type { Store } from '../../src/backends/store/store.ts'
import { entriesOf } from '../../src/domain/subscription/holds.ts'
import type { Task } from '../../src/domain/task.ts'
import { sweepTasks, type SweepOptions } from '../../src/tasks/recovery-sweeps.ts'
import { verifyStore } from '../../src/verify/verify.ts'
import { hold, mediaPlan, T0, task, taskId } from '../contracts/store/acme.ts'
import { contextOf, storeOf } from './task-context.ts'

const HOUR_MS = 3_600_000
const STUDIO = 'acme/studio'
const QUOTE = 40_000
const UNSERVED: SweepOptions = { graceMs: () => null, queueMs: 24 * HOUR_MS, isServed: (kind) => kind !== 'image' }

async function open(t: Test): Promise<Store> {
  const store = await storeOf(t)
  await store.change(STUDIO, mediaPlan({ maxConcurrentTasks: 1 }), T0)
  return store
}

async function queue(store: Store, n: number, { held = true, ...facts }: Partial<Task> & { held?: boolean } = {}): Promise<void> {
  const queued = task(n, { state: 'queued', sweepAt: T0 + HOUR_MS / 4, ...facts })
  await store.createTask(queued)
  if (held) await store.change(STUDIO, { ...hold(queued.id, queued.kind), amount: QUOTE }, T0)
}

/** Sweeps every quarter of an hour, and returns the repairs of `reason`, each by its hour. */
async function sweepFor(store: Store, hours: number, options: SweepOptions, reason: 'unheld' | 'unserved'): Promise<number[]> {
  const repaired: number[] = []
  for (let ms = 0; ms <= hours * HOUR_MS; ms += HOUR_MS / 4) {
    const swept = await sweepTasks(contextOf(store, () => T0 + ms), options)
    for (let n = 0; n < swept[reason]; n++) repaired.push(ms / HOUR_MS)
  }
  return repaired
}

t.test('a task of a kind that no worker takes fails after QUEUE_HOURS as not_supported, and is refunded', async (t) => {
  const store = await open(t)
  await queue(store, 1)
  await queue(store, 2, { kind: 'video' })
  t.same(await sweepFor(store, 30, UNSERVED, 'unserved'), [24])
  t.match(await store.task('acme', taskId(1)), { state: 'failed', outcome: { outcome: 'failed', code: 'not_supported' }, actualCost: 0, refundAmount: QUOTE })
  t.same((await store.deliveries(taskId(1))).map(({ event }) => event), ['task.failed', 'task.refunded'])
  t.equal((await store.task('acme', taskId(2)))?.state, 'queued', 'its kind is taken')
  t.same([...new Map(entriesOf((await store.subscription(STUDIO))?.media?.holds)).keys()], [taskId(2)])
  t.match(await verifyStore(store, { now: T0 + 30 * HOUR_MS }), { violations: [] })
})

t.test('a task that was handed back or waits for another attempt counts its hours from then, and a claimed one is left alone', async (t) => {
  const handedBack = await open(t)
  const store = await open(t)
  for (const [one, at] of [[handedBack, T0 + 10 * HOUR_MS], [store, T0]] as const) {
    await queue(one, 1)
    await one.change(STUDIO, { op: 'claim', claim: 'a', kinds: ['image'] }, T0)
    await one.change(STUDIO, { op: 'requeue', task: taskId(1), epoch: 2, readyAt: T0 + 10 * HOUR_MS, served: true }, at)
    t.same(await sweepFor(one, 40, UNSERVED, 'unserved'), [34])
  }
  await queue(store, 2)
  t.match(await store.change(STUDIO, { op: 'claim', claim: 'b', kinds: ['image'] }, T0), { outcome: 'claimed' })
  // The time of the record is that of the last sweep: its hours end after 58.
  t.same(await sweepFor(store, 80, UNSERVED, 'unserved'), [])
})

t.test('a task that waits for a slot of its plan is left alone', async (t) => {
  const store = await open(t)
  await queue(store, 1, { kind: 'video' })
  await queue(store, 2)
  await store.change(STUDIO, { op: 'claim', claim: 'a', kinds: ['video'] }, T0)
  t.same(await sweepFor(store, 30, UNSERVED, 'unserved'), [])
})

t.test('a queued task without a hold fails as internal at the first sweep, and nothing is charged', async (t) => {
  const store = await open(t)
  await queue(store, 1, { held: false })
  await queue(store, 2, { held: false, subscription: 'acme/gone' })
  await queue(store, 3)
  t.same(await sweepFor(store, 1, UNSERVED, 'unheld'), [0.25, 0.25])
  for (const n of [1, 2]) t.match(await store.task('acme', taskId(n)), { state: 'failed', outcome: { code: 'internal' }, actualCost: 0, refundAmount: QUOTE })
  t.equal((await store.task('acme', taskId(3)))?.state, 'queued')
  t.equal((await store.subscription(STUDIO))?.media?.period.burned, 0)
})

t.test('a kind counts as taken elsewhere while runs of it are seen, and for an hour of observation after', (t) => {
  const elsewhere = openServedElsewhere()
  const running = [{ state: 'processing', kind: 'upscale' } as const, { state: 'queued', kind: 'image' } as const]
  t.ok(elsewhere.isServed('image', T0), 'nothing was observed yet')
  const taken = { image: 0, upscale: 0 }
  for (let ms = 0; ms <= 2 * HOUR_MS; ms += 1000) {
    elsewhere.observe(ms <= HOUR_MS / 2 ? running : running.slice(1), T0 + ms)
    for (const kind of ['image', 'upscale'] as const) if (elsewhere.isServed(kind, T0 + ms)) taken[kind]++
  }
  t.same(taken, { image: 3600, upscale: 5400 }, 'seconds')
  t.ok(elsewhere.isServed('image', T0 + 9 * HOUR_MS), 'what was seen before a gap says nothing')
  elsewhere.observe([], T0 + 9 * HOUR_MS)
  t.ok(elsewhere.isServed('image', T0 + 9 * HOUR_MS), 'a gap: the observation starts anew')
  t.end()
})
