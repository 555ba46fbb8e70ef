/** Loop: due webhook deliveries → receivers. A slow receiver occupies only the slots of its tenant there. */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import type { BrokerConsumer } from '../../src/backends/broker/broker.ts'
import { rarely } from '../../src/concurrency/periodic-task.ts'
import { singleFlight } from '../../src/concurrency/single-flight.ts'
import { deliveryLogFields, type Delivery } from '../../src/domain/task.ts'
import { traced } from '../../src/telemetry/tracing.ts'
import { LOOK_MS } from '../../src/domain/webhook-retries.ts'
import { MIN_CONCURRENCY, openConcurrencyLimits, sharesOf } from './concurrency-limits.ts'
import { deliver, type Attempted } from './delivery-attempt.ts'
import { metersOf } from '../../src/telemetry/metrics.ts'

/** Concurrent deliveries of this process. */
const SLOTS = 1_000
/** Those to one receiver, in all processes. */
const PER_HOST = 128
/** Lease time beyond the attempt itself: reading the key, recording the attempt. */
const LEASE_SLACK_MS = 30_000

async function dispatcher(app: FastifyInstance): Promise<void> {
  const { config, store, clock, log } = app
  const delaysMs = config.WEBHOOK_DELAYS_MS
  const timeoutMs = config.WEBHOOK_TIMEOUT_MS
  const context = {
    store,
    egress: app.egress,
    sealingKeys: app.sealingKeys,
    clock,
    random: Math.random,
    brand: config.BRAND,
    delaysMs,
    timeoutMs,
    log,
  }
  const { counter, histogram } = metersOf(app.metrics.registry)
  const deliveries = counter('tollgate_webhook_deliveries_total', 'Webhook attempts.', 'outcome', 'attempt')
  const lag = histogram(
    'tollgate_webhook_lag_seconds',
    'From the time an attempt was due to the time it was made.',
    [0.05, 0.25, 1, 5, 30, 300],
  )

  const limits = openConcurrencyLimits(clock)
  const inFlight = new Set<Promise<void>>()
  const cut = new AbortController()
  let stopping = false

  const reportClaim = rarely((err) => log.warn({ event: 'delivery_claim_failed', err }, 'claiming deliveries failed, retrying'))
  const look = singleFlight(async () => {
    for (let isCut = true; isCut && inFlight.size < SLOTS && !stopping;) {
      const shares = sharesOf(SLOTS - inFlight.size)
      const now = clock()
      const caps = { ...shares, perHost: PER_HOST, perQueue: MIN_CONCURRENCY, queues: limits.above() }
      const claimed = await store.claimDeliveries(now, now + timeoutMs + LEASE_SLACK_MS, caps)
      claimed.forEach(start)
      reportClaim(null)
      isCut = claimed.length === shares.limit
    }
  }, reportClaim)

  function start(delivery: Delivery): void {
    const attempt = tracedDelivery(delivery, () => deliver(context, delivery, cut.signal))
      .then((attempted) => report(delivery, attempted))
      .catch((err: unknown) =>
        log.warn(
          { event: 'delivery_attempt_unrecorded', err, ...deliveryLogFields(delivery) },
          'webhook attempt not recorded, repeating it',
        ),
      )
      .finally(() => {
        inFlight.delete(attempt)
        void look()
      })
    inFlight.add(attempt)
  }

  function report(delivery: Delivery, attempted: Attempted): void {
    limits.learn(delivery, attempted)
    const { outcome, attempt, final, lagMs } = attempted
    if (outcome === 'returned' || outcome === 'lost') return
    deliveries.inc({ outcome, attempt: String(attempt) })
    if (outcome === 'unsigned') return
    lag.observe(lagMs / 1000)
    log.info({ ...deliveryLogFields(delivery), webhookEvent: delivery.event, outcome, attempt, final }, 'webhook attempt')
  }

  let timer: NodeJS.Timeout | undefined
  let messages: BrokerConsumer | undefined
  app.addHook('onReady', async () => {
    messages = app.broker.consume('webhook', async () => void look())
    timer = setInterval(() => void look(), LOOK_MS)
    void look()
  })
  app.addHook('preClose', async () => {
    stopping = true
    clearInterval(timer)
    messages?.stop()
    // Deliveries in flight get the same shutdown time as streams and tasks, then they are returned.
    setTimeout(() => cut.abort(), config.SHUTDOWN_MS).unref()
  })
  app.addHook('onClose', async () => {
    await look.done()
    await Promise.allSettled(inFlight)
  })
}

/** Without the address, which is the tenant's. */
function tracedDelivery(delivery: Delivery, deliverOnce: () => Promise<Attempted>): Promise<Attempted> {
  const { traceparent, event, taskId, tenant, attempts } = delivery
  const attributes = {
    'http.request.method': 'POST',
    'http.request.resend_count': attempts.length,
    'tollgate.webhook.event': event,
    'tollgate.task.id': taskId,
    'tollgate.tenant': tenant,
  }
  return traced('deliver webhook', { kind: 'client', parent: traceparent ?? null, attributes }, async (span) => {
    const attempted = await deliverOnce()
    span.set({ 'tollgate.webhook.outcome': attempted.outcome })
    if (attempted.outcome === 'failed') span.fail('undelivered')
    return attempted
  })
}

export default fp(dispatcher, {
  name: 'dispatcher',
  fastify: '5.x',
  dependencies: ['ops'],
  decorators: { fastify: ['broker', 'clock', 'config', 'egress', 'metrics', 'sealingKeys', 'store'] },
})
