import t from 'tap'
import { redeliver } from '../../src/domain/redelivery.ts'
import type { Delivery } from '../../src/domain/task.ts'

const T0 = Date.UTC(2026, 0, 5)
const attempt: Delivery['attempts'][number] = { number: 1, at: T0, durationMs: 5, statusCode: 500, error: 'status', responsePrefix: '' }
const delivery: Delivery = {
  id: 'task.task.failed', taskId: 'task', tenant: 'acme', keyVersionId: 'key-1', event: 'task.failed', url: 'https://receiver.test/hook', host: 'receiver.test', body: '{}',
  state: 'pending', nextAttemptAt: T0 + 30_000, epoch: 1, leaseUntil: null, attempts: [attempt], createdAt: T0,
}

t.test('a delivery that waits for its next attempt is due now, and keeps that time', async (t) => {
  t.match(redeliver(delivery, T0 + 10), { outcome: 'due', delivery: { state: 'pending', nextAttemptAt: T0 + 10, redelivery: { resumeAt: T0 + 30_000 } } })
})

t.test('no attempt is made twice: of a delivery that is due, was never attempted or is under way, nothing changes', async (t) => {
  const under = { ...delivery, leaseUntil: T0 + 60_000 }
  for (const coming of [{ ...delivery, nextAttemptAt: T0 }, { ...delivery, attempts: [] }, under, { ...under, nextAttemptAt: T0 + 11 }]) {
    t.same(redeliver(coming, T0 + 10), { outcome: 'coming' })
  }
})
