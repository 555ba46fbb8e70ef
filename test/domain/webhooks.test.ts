import t from 'tap'
import { decide, LOOK_MS, nextAttempt } from '../../src/domain/webhook-retries.ts'
import { completedData, envelope, failedData, refundedData, signatureHeaders, type Signing } from '../../src/domain/webhooks.ts'
import { openReceiver, verifies, verifiesStandard } from '../fakes/receiver.ts'

const at = Date.UTC(2026, 10, 21, 8, 0, 0)
const taskId = '019ab000-0000-7000-8000-000000000001'
const apiKey = 'svc_live_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM'
const failed = failedData({
  taskId, error: { code: 'provider_error', message: 'The media could not be made.' }, estimatedMicro: 40_000, refundMicro: 40_000, attempts: 3, createdAt: at, failedAt: at + 9000,
})
const signing: Signing = { event: 'task.failed', body: envelope('task.failed', at + 9000, failed), apiKey, keyVersionId: 'key-2', brand: 'SVC', messageId: 'msg_1', atMs: at + 9876 }

t.test('the envelope and each data hold exactly the fields of the specification', async (t) => {
  const result = { image_url: 'https://svc.example/files/1', content_type: 'image/png' }
  const completed = completedData({ taskId, result, estimatedMicro: 40_000, actualMicro: 33, durationSeconds: 12, createdAt: at, completedAt: at + 12_500 })
  t.equal(
    envelope('task.completed', at + 12_500, completed),
    `{"event":"task.completed","timestamp":"2026-11-21T08:00:12.500Z","data":{"task_id":"${taskId}","status":"completed",` +
      '"result":{"image_url":"https://svc.example/files/1","content_type":"image/png"},"estimated_cost":"0.0400","actual_cost":"0.000033",' +
      '"duration_seconds":12,"created_at":"2026-11-21T08:00:00.000Z","completed_at":"2026-11-21T08:00:12.500Z"}}',
  )
  t.equal(
    envelope('task.failed', at + 9000, failed),
    `{"event":"task.failed","timestamp":"2026-11-21T08:00:09.000Z","data":{"task_id":"${taskId}","status":"failed",` +
      '"error":{"code":"provider_error","message":"The media could not be made."},"estimated_cost":"0.0400","refund_amount":"0.0400",' +
      '"attempts":3,"created_at":"2026-11-21T08:00:00.000Z","failed_at":"2026-11-21T08:00:09.000Z"}}',
  )
  t.equal(
    envelope('task.refunded', at, refundedData({ taskId, refundMicro: 40_000, newBalanceMicro: 12_500_000 })),
    `{"event":"task.refunded","timestamp":"2026-11-21T08:00:00.000Z","data":{"task_id":"${taskId}","refund_amount":"0.0400","new_balance":"12.5000"}}`,
  )
  const secretive = { code: 'provider_error', message: 'm', cause: 'upstream.example said no' }
  t.notMatch(JSON.stringify(failedData({ taskId, error: secretive, estimatedMicro: 1, refundMicro: 1, attempts: 1, createdAt: at, failedAt: at })), /upstream/)
})

t.test('the headers are those of section 6.3, with the version of the key and Standard Webhooks beside them', async (t) => {
  const known = signatureHeaders({ ...signing, body: 'The quick brown fox jumps over the lazy dog', apiKey: 'key', messageId: 'msg_1', atMs: 1_700_000_000_999, brand: 'ACME' })
  t.same(known, {
    'Content-Type': 'application/json',
    'X-ACME-Signature': 'sha256=f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8',
    'X-ACME-Event': 'task.failed',
    'X-ACME-Key-Id': 'key-2',
    'webhook-id': 'msg_1',
    'webhook-timestamp': '1700000000',
    'webhook-signature': known['webhook-signature'],
  })
  t.same(signatureHeaders(signing), signatureHeaders(signing), 'the same attempt signs the same')
})

t.test('a receiver that knows the API key verifies the raw bytes, and nobody else\'s', async (t) => {
  const receiver = await openReceiver(t)
  const body = envelope('task.failed', at, { ...failed, error: { code: 'provider_error', message: 'Ümläute, 日本語, 🎬 and "quotes"' } })
  await fetch(receiver.url, { method: 'POST', headers: signatureHeaders({ ...signing, body }), body })
  const [received] = await receiver.arrived(1)
  if (!received) return
  t.equal(received.rawBody.toString(), body)
  t.match(received.headers, { 'content-type': 'application/json', 'x-svc-event': 'task.failed', 'x-svc-key-id': 'key-2', 'webhook-timestamp': String(at / 1000 + 9) })
  const secret = `whsec_${Buffer.from(apiKey).toString('base64')}`
  t.ok(await verifies(received, apiKey))
  t.ok(await verifiesStandard(received, secret))
  t.notOk(await verifies(received, `${apiKey}x`))
  t.notOk(await verifiesStandard(received, `${secret.slice(0, -4)}AAAA`))
  for (const tampered of [{ ...received, rawBody: Buffer.from(`${body} `) }, { ...received, rawBody: Buffer.from(body.replace('0.0400', '9.0400')) }]) {
    t.notOk(await verifies(tampered, apiKey))
    t.notOk(await verifiesStandard(tampered, secret))
  }
  t.notOk(await verifiesStandard({ ...received, headers: { ...received.headers, 'webhook-timestamp': '1' } }, secret), 'the time is signed')
})

t.test('attempts are 0 s, 30 s, 2 min, 10 min and 1 h after the end of the one before, never early, and looked for in time to be at most 5 % late', async (t) => {
  const delaysMs = [0, 30_000, 120_000, 600_000, 3_600_000]
  t.same(nextAttempt({ attempt: 0, endedAtMs: at, delaysMs, jitter: 1 }), { outcome: 'due', atMs: at }, 'no jitter on the first')
  t.same(nextAttempt({ attempt: 0, endedAtMs: at, delaysMs: [1000], jitter: 1 }), { outcome: 'due', atMs: at + 1000 }, 'no jitter on the first')
  let cumulativeMs = 0
  for (const attempt of [1, 2, 3, 4]) {
    const delayMs = delaysMs[attempt] ?? 0
    t.same(nextAttempt({ attempt, endedAtMs: at + cumulativeMs, delaysMs, jitter: 0 }), { outcome: 'due', atMs: at + (cumulativeMs += delayMs) })
    for (const jitter of [0, 0.001, 0.5, 0.999, 1]) {
      const next = nextAttempt({ attempt, endedAtMs: at, delaysMs, jitter })
      t.ok(next.outcome === 'due' && next.atMs >= at + delayMs && next.atMs + LOOK_MS <= at + delayMs * 1.05 && Number.isInteger(next.atMs), `attempt ${attempt + 1}, jitter ${jitter}`)
    }
  }
  t.match(nextAttempt({ attempt: 4, endedAtMs: at, delaysMs, jitter: 1 }), { atMs: at + 3_600_000 * 1.05 - LOOK_MS }, 'spread over the rest')
  for (const delayMs of [1, 5_000, 20_000]) t.same(nextAttempt({ attempt: 1, endedAtMs: at, delaysMs: [0, delayMs], jitter: 1 }), { outcome: 'due', atMs: at + delayMs }, 'a short delay')
  t.equal(cumulativeMs, ((1 * 60 + 12) * 60 + 30) * 1000, '1 h 12 min 30 s in all')
  t.same(nextAttempt({ attempt: 5, endedAtMs: at, delaysMs, jitter: 0 }), { outcome: 'failed' })
  t.same(nextAttempt({ attempt: 1, endedAtMs: at, delaysMs: [0], jitter: 0 }), { outcome: 'failed' }, 'the number of delays is the number of attempts')
})

t.test('any 2xx is a delivery, everything else a failure', async (t) => {
  const answered = (status: number, body = '') => decide({ outcome: 'answered', status, body: Buffer.from(body) })
  for (const status of [200, 201, 202, 204, 208, 299]) t.match(answered(status), { outcome: 'delivered', statusCode: status, error: null })
  for (const status of [300, 301, 302, 304, 307, 308]) t.match(answered(status), { outcome: 'failed', statusCode: status, error: 'redirect' })
  for (const status of [199, 400, 401, 404, 410, 429, 500, 503, 599, 600]) t.match(answered(status), { outcome: 'failed', statusCode: status, error: 'status' })
  t.same(decide({ outcome: 'refused', reason: 'address_not_allowed' }), { outcome: 'failed', statusCode: null, error: 'address_not_allowed', responsePrefix: null })
})

t.test('a 2xx that does not end in time, or breaks off, is a delivery; any other answer that does is a failure, whose status is kept', async (t) => {
  for (const reason of ['timeout', 'reset', 'protocol']) {
    t.same(decide({ outcome: 'failed', reason, status: 200 }), { outcome: 'delivered', statusCode: 200, error: null, responsePrefix: null })
    t.same(decide({ outcome: 'failed', reason, status: 302 }), { outcome: 'failed', statusCode: 302, error: reason, responsePrefix: null })
  }
  t.same(decide({ outcome: 'failed', reason: 'timeout', status: null }), { outcome: 'failed', statusCode: null, error: 'timeout', responsePrefix: null })
  t.same(decide({ outcome: 'failed', reason: 'timeout', status: 500 }), { outcome: 'failed', statusCode: 500, error: 'timeout', responsePrefix: null })
})

t.test('a short, printable prefix of the answer is kept', async (t) => {
  const prefix = (body: Uint8Array) => decide({ outcome: 'answered', status: 500, body }).responsePrefix
  t.equal(prefix(Buffer.from('no\u0000\u001b[31m\r\nway\u202e')), 'no  [31m  way ')
  t.equal([...(prefix(Buffer.from('🎬'.repeat(5000))) ?? '')].length, 200)
  t.equal(prefix(Buffer.from('x'.repeat(5000)))?.length, 200)
  t.equal(prefix(new Uint8Array(0)), '')
  t.match(prefix(Buffer.from([0xff, 0xfe])), '\ufffd')
})
