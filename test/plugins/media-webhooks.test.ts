/** What is announced of a task: when, how often, and signed by what. */
import t from 'tap'
import { openReceiver, verifies, verifiesStandard } from '../fakes/receiver.ts'
import { openStudio } from './studio.ts'

t.test('a finished task is announced: signed with the key, by the contract and by Standard Webhooks', async (t) => {
  const receiver = await openReceiver()
  t.teardown(() => receiver.close())
  const studio = await openStudio(t)
  const { id } = (await studio.create({ webhook_url: receiver.url })).json()
  const [call] = await receiver.arrived(1)
  const body = JSON.parse(String(call?.rawBody))
  t.same(Object.keys(body), ['event', 'timestamp', 'data'])
  t.same(Object.keys(body.data), ['task_id', 'status', 'result', 'estimated_cost', 'actual_cost', 'duration_seconds', 'created_at', 'completed_at'])
  t.match(body, { event: 'task.completed', data: { task_id: id, status: 'completed', estimated_cost: '0.0400', actual_cost: '0.0400' } })
  t.equal(call?.headers['x-svc-event'], 'task.completed')
  t.equal(call?.headers['x-svc-key-id'], studio.keyVersionId)
  if (call) {
    t.ok(await verifies(call, studio.raw))
    t.ok(await verifiesStandard(call, `whsec_${Buffer.from(studio.raw).toString('base64')}`))
  }
  const deliveries = async () => (await studio.get(`/api/v1/generations/${id}/deliveries`)).json().data
  while ((await deliveries())[0]?.status !== 'delivered') await new Promise((resolve) => setTimeout(resolve, 5))
  t.match(await deliveries(), [{ object: 'delivery', task_id: id, event: 'task.completed', status: 'delivered', attempts: [{ number: 1, status_code: 204, error: null }] }])
})

t.test('a failed task is announced by task.failed, and by task.refunded once that had its first attempt', async (t) => {
  const receiver = await openReceiver()
  t.teardown(() => receiver.close())
  const studio = await openStudio(t, { media: { attempts: 1 } })
  studio.engine.next({ fail: 'provider_error', retryable: true })
  receiver.next({ status: 500 })
  const { id } = (await studio.create({ webhook_url: receiver.url })).json()
  const [failed, refunded] = await receiver.arrived(2)
  t.match(JSON.parse(String(failed?.rawBody)), { event: 'task.failed', data: { task_id: id, status: 'failed', error: { code: 'provider_error' }, estimated_cost: '0.0400', refund_amount: '0.0400', attempts: 1 } })
  t.match(JSON.parse(String(refunded?.rawBody)), { event: 'task.refunded', data: { task_id: id, refund_amount: '0.0400', new_balance: '10.0000' } })
  t.same(Object.keys(JSON.parse(String(refunded?.rawBody)).data), ['task_id', 'refund_amount', 'new_balance'])
})

t.test('a delivery that fails is made again after 30 s, 2 min, 10 min and 1 h, and then no more', async (t) => {
  const receiver = await openReceiver()
  t.teardown(() => receiver.close())
  const studio = await openStudio(t)
  for (let i = 0; i < 5; i++) receiver.next({ status: 503 })
  const { id } = (await studio.create({ webhook_url: receiver.url })).json()
  const delivery = async () => (await studio.get(`/api/v1/generations/${id}/deliveries`)).json().data[0]
  const attempted = async (count: number) => {
    for (;;) {
      const now = await delivery()
      if (now?.attempts.length === count) return now
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
  }
  for (const [i, seconds] of [30, 120, 600, 3600].entries()) {
    const { status, next_attempt_at: next, attempts } = await attempted(i + 1)
    t.equal(status, 'pending')
    const waitMs = Date.parse(next) - Date.parse(attempts[i].at) - attempts[i].duration_ms
    t.ok(waitMs >= seconds * 1000 && waitMs <= seconds * 1050, `${waitMs} ms before attempt ${i + 2}`)
    studio.time.now = Date.parse(next)
  }
  t.match(await attempted(5), { status: 'failed', next_attempt_at: null })
})
