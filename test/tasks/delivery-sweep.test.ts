/** Deliveries that wait for another one which was attempted: found by the sweep, and by `tollgate verify`. */
import { join } from 'node:path'
import t from 'tap'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import { sweepDeliveries } from '../../src/tasks/delivery-sweep.ts'
import { deliveryViolations } from '../../src/verify/task-invariants.ts'
import { delivery, T0, task, taskId } from '../contracts/store/acme.ts'

const MINUTE_MS = 60_000
const CAPS = { limit: 100, perHost: 100, perTenant: 100, perQueue: 100 }
const attempt = { number: 1, at: T0, durationMs: 1, statusCode: 500, error: 'status', responsePrefix: '' }
const failedOf = (n: number) => delivery(n, { event: 'task.failed' })
const refundedOf = (n: number) => delivery(n, { event: 'task.refunded', state: 'waiting', nextAttemptAt: null })

/** Failed tasks, of which the first attempts of some were made before their refunds were stored. */
async function fill(store: Store, overlooked: number[], waiting: number[]): Promise<void> {
  for (const n of [...overlooked, ...waiting]) {
    await store.createTask(task(n, { state: 'failed', endedAt: T0 }))
    await store.relay(taskId(n), overlooked.includes(n) ? [failedOf(n)] : [failedOf(n), refundedOf(n)], [])
  }
  for (const { id, epoch, taskId: owner } of await store.claimDeliveries(T0, T0 + MINUTE_MS, CAPS)) {
    if (waiting.some((n) => taskId(n) === owner)) continue
    await store.recordAttempt(id, epoch, attempt, { state: 'pending', nextAttemptAt: T0 + 90 * MINUTE_MS }, { id: id.replace('failed', 'refunded'), at: T0 })
  }
  for (const n of overlooked) await store.relay(taskId(n), [failedOf(n), refundedOf(n)], [])
}

t.test('the sweep releases each delivery that was stored after the attempt which would have released it, and no other', async (t) => {
  const store = await openStore(`sqlite:${join(t.testdir(), 'tollgate.db')}`)
  t.teardown(() => store.close())
  await fill(store, [1, 3, 5], [2, 4])
  const sweep = (now: number, after: string, limit: number) => sweepDeliveries({ store, clock: () => now }, after, limit)
  t.same(await sweep(T0 + 1000, '', 10), { released: 0, next: '' }, 'a young delivery is left alone')
  const first = await sweep(T0 + MINUTE_MS, '', 2)
  t.same(first, { released: 1, next: refundedOf(2).id })
  t.same(await sweep(T0 + MINUTE_MS, first.next, 10), { released: 2, next: '' })
  t.same((await store.waitingDeliveries('', 10)).map(({ id }) => id), [refundedOf(2).id, refundedOf(4).id])
  const due = await store.claimDeliveries(T0 + 2 * MINUTE_MS, T0 + 3 * MINUTE_MS, CAPS)
  t.same(due.filter(({ event }) => event === 'task.refunded').map(({ id }) => id).toSorted(), [1, 3, 5].map((n) => refundedOf(n).id))
})

t.test('verify reports a delivery that waits for another one which was attempted', async (t) => {
  const store = await openStore(`sqlite:${join(t.testdir(), 'tollgate.db')}`)
  t.teardown(() => store.close())
  await fill(store, [1], [2])
  const violationsOf = async (n: number) => [...deliveryViolations(task(n, { state: 'failed' }), await store.deliveries(taskId(n)), T0)]
  t.same(await violationsOf(1), [`delivery ${refundedOf(1).id} of acme/studio waits for another one, which was attempted`])
  t.same(await violationsOf(2), [])
})
