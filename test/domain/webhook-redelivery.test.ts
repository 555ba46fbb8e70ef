import t from 'tap'
import { redeliver, redeliverableAt } from '../../src/domain/webhook-redelivery.ts'
import type { Delivery, DeliveryAttempt } from '../../src/domain/task.ts'

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

const END = 1_000
const made = (statusCode: number | null, redelivery: boolean): DeliveryAttempt => ({ number: 1, at: END - 100, durationMs: 100, statusCode, error: null, responsePrefix: null, ...(redelivery ? { redelivery } : {}) })
const scheduled = made(503, false)
const [hung, redelivered] = [made(null, true), made(204, true)]

const PAUSES: [string, DeliveryAttempt[], number][] = [
  ['none after attempts of the schedule', [scheduled, scheduled], 0],
  ['30 s after one that hung', [scheduled, hung], 30_000],
  ['2 min after two, whatever the schedule did between them', [scheduled, hung, scheduled, hung], 120_000],
  ['10 min after three', [hung, hung, hung], 600_000],
  ['1 h after four, and after more', [hung, hung, hung, hung, hung], 3_600_000],
  ['none after one that was delivered', [hung, hung, redelivered], 0],
  ['30 s again after the next that fails', [hung, hung, redelivered, hung], 30_000],
]

for (const [name, attempts, pauseMs] of PAUSES) {
  t.test(`the pause before the next redelivery: ${name}`, async (t) => {
    const failed = { ...delivery, attempts, state: 'failed', nextAttemptAt: null } as Delivery
    const at = redeliverableAt(failed)
    t.equal(at, pauseMs === 0 ? 0 : END + pauseMs)
    if (pauseMs > 0) t.match(redeliver(failed, at - 1), { outcome: 'early' })
    t.match(redeliver(failed, Math.max(at, END)), { outcome: 'due' })
  })
}
