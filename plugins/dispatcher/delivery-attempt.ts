/** One webhook attempt: sign → send → classify the answer → record the attempt and the next one (specification, sections 6.3 and 6.4). */
import type { FastifyBaseLogger } from 'fastify'
import type { Egress } from '../../src/egress/egress.ts'
import { open, type SealingKeys } from '../../src/domain/api-keys.ts'
import type { Store } from '../../src/backends/store/store.ts'
import { releasedBy } from '../../src/tasks/outbox.ts'
import { deliveryLogFields, type Delivery } from '../../src/domain/task.ts'
import { scheduledAttempts } from '../../src/domain/webhook-redelivery.ts'
import { currentTraceparent } from '../../src/telemetry/tracing.ts'
import { decide, nextAttempt } from '../../src/domain/webhook-retries.ts'
import { signatureHeaders } from '../../src/domain/webhooks.ts'

export type DeliveryContext = {
  store: Store
  egress: Egress
  sealingKeys: SealingKeys
  clock: () => number
  random: () => number
  brand: string
  delaysMs: readonly number[]
  timeoutMs: number
  log: FastifyBaseLogger
}

export type Attempted = {
  outcome: 'delivered' | 'failed' | 'returned' | 'lost' | 'unsigned'
  attempt: number
  final: boolean
  lagMs: number
  durationMs: number
}

/** Delay after a failure to sign, which is ours and uses up no attempt. */
const UNSIGNED_PAUSE_MS = 60_000
/** Bytes read of an answer: only its status matters. */
const ANSWER_BYTES = 20_000

/**
 * Makes the next attempt of a claimed delivery. When `signal` aborts it before a 2xx, the delivery is returned
 * and the next attempt has the same number. Throws `Unavailable` when the attempt cannot be recorded.
 */
export async function deliver(context: DeliveryContext, delivery: Delivery, signal: AbortSignal): Promise<Attempted> {
  const { store, clock } = context
  const number = delivery.attempts.length + 1
  const at = clock()
  const attempted = { attempt: number, final: false, lagMs: Math.max(0, at - (delivery.nextAttemptAt ?? at)), durationMs: 0 }
  const version = await store.keyVersion(delivery.keyVersionId)
  const apiKey = version && open(version.sealed, version.id, context.sealingKeys)
  if (apiKey === null) {
    await returnUnsigned(context, delivery, at)
    return { ...attempted, outcome: 'unsigned' }
  }
  const signing = {
    event: delivery.event,
    body: delivery.body,
    apiKey,
    keyVersionId: delivery.keyVersionId,
    brand: context.brand,
    messageId: delivery.id,
    atMs: at,
  }
  // The trace of the task continues at the receiver (W3C Trace Context).
  const traceparent = currentTraceparent()
  const reply = await context.egress.request({
    url: delivery.url,
    method: 'POST',
    headers: { ...signatureHeaders(signing), ...(traceparent !== null && { traceparent }) },
    body: delivery.body,
    deadlineMs: context.timeoutMs,
    maxBytes: ANSWER_BYTES,
    over: 'cut',
    redirects: 0,
    reuse: true,
    signal,
  })
  const { outcome, ...answered } = decide(reply)
  if (answered.error === 'canceled') {
    await store.returnDelivery(delivery.id, delivery.epoch, clock())
    return { ...attempted, outcome: 'returned' }
  }
  const endedAt = clock()
  const next = outcome === 'delivered' ? null : afterFailure(context, delivery, endedAt)
  const state = next === null ? 'delivered' : next.outcome === 'due' ? 'pending' : 'failed'
  const release = number === 1 ? releasedBy(delivery) : null
  const recorded = await store.recordAttempt(
    delivery.id,
    delivery.epoch,
    {
      number,
      at,
      durationMs: reply.durationMs,
      ...answered,
      ...(delivery.redelivery && { redelivery: true }),
    },
    { state, nextAttemptAt: next?.outcome === 'due' ? next.atMs : null },
    release === null ? null : { id: release, at: endedAt },
  )
  return { ...attempted, outcome: recorded === 'lost' ? 'lost' : outcome, final: state !== 'pending', durationMs: reply.durationMs }
}

async function returnUnsigned({ store, log }: DeliveryContext, delivery: Delivery, at: number): Promise<void> {
  log.error(
    { event: 'webhook_unsigned', ...deliveryLogFields(delivery), keyId: delivery.keyVersionId },
    'webhook not signed: no sealing key opens its API key',
  )
  await store.returnDelivery(delivery.id, delivery.epoch, at + UNSIGNED_PAUSE_MS)
}

/** A redelivery that failed leaves the schedule as it was. */
function afterFailure({ delaysMs, random }: DeliveryContext, delivery: Delivery, endedAtMs: number): ReturnType<typeof nextAttempt> {
  const { redelivery } = delivery
  if (!redelivery) return nextAttempt({ attempt: scheduledAttempts(delivery) + 1, endedAtMs, delaysMs, jitter: random() })
  return redelivery.resumeAt === null ? { outcome: 'failed' } : { outcome: 'due', atMs: redelivery.resumeAt }
}
