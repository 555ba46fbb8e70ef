/** Usage records after their charge: those that a process left in the records of plans are stored, all are published to the broker, and old ones are removed. */
import { randomUUID } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'
import { metersOf } from '../../src/telemetry/metrics.ts'

const PERIOD_MS = 1_000
/** Without USAGE_DAYS: there may be records of the time before, or of processes that have it. */
const IDLE_PERIOD_MS = 60_000
const LEASE = 'usage-records'
const LEASE_MS = 5_000
/** A process stores what it made within moments: what is older was left by one that ended, or could not. */
const LEFT_MS = 10_000
const BATCH = 500
/** Batches in one period; the rest waits for the next. */
const MOST_BATCHES = 20

async function usageRecords(app: FastifyInstance): Promise<void> {
  const { store, clock, broker, log } = app
  const keptMs = app.config.USAGE_MS
  const owner = randomUUID()
  let isOwner = false
  let hasFailed = false
  const unpublished = metersOf(app.metrics.registry).gauge(
    'tollgate_usage_unpublished_age_seconds',
    'Age of the oldest usage record that is still to be published, in the process that publishes; 0 in others.',
  )

  /** Published before it is marked: a process that ends in between publishes it again, under the same id. */
  async function publishBatch(publish: NonNullable<typeof broker.publishUsage>, now: number): Promise<number> {
    const records = await store.unpublishedUsage(BATCH)
    unpublished.set(Math.max(0, now - (records[0]?.at ?? now)) / 1000)
    if (records.length === 0) return 0
    await publish(records)
    await store.usagePublished(records)
    return records.length
  }

  /** Repeats while batches come back full. */
  async function untilDone(batch: () => Promise<number>): Promise<void> {
    for (let batches = 0; batches < MOST_BATCHES && (await batch()) === BATCH;) batches++
  }

  async function work(now: number): Promise<void> {
    await untilDone(() => store.storeOutboxes(now - LEFT_MS, BATCH))
    const { publishUsage } = broker
    try {
      if (publishUsage) await untilDone(() => publishBatch(publishUsage, now))
    } finally {
      // Also while the broker is away, but what it has not got stays.
      if (keptMs > 0) await untilDone(() => store.removeUsage(now - keptMs, BATCH, publishUsage ? 'published' : 'all'))
    }
  }

  /** What failed here is no longer this process's to report. */
  async function leaveToOthers(): Promise<void> {
    unpublished.set(0)
    await broker.publishUsage?.([])
  }

  async function pass(): Promise<void> {
    const now = clock()
    isOwner = await store.takeLease(LEASE, owner, now + LEASE_MS, now)
    if (isOwner) await work(now)
    else await leaveToOthers()
    if (hasFailed) log.info({ event: 'usage_records_recovered' }, 'usage records stored and published again')
    hasFailed = false
  }

  const task = periodicTask(keptMs > 0 ? PERIOD_MS : IDLE_PERIOD_MS, pass, (err) => {
    if (!hasFailed) log.warn({ event: 'usage_records_failed', err }, 'usage records not stored or published, will be retried')
    hasFailed = true
  })
  app.addHook('onReady', async () => {
    await task.start()
    void task.runNow()
  })
  app.addHook('onClose', async () => {
    await task.cancel()
    // Another process goes on at once.
    if (isOwner && !hasFailed) await store.releaseLease(LEASE, owner).catch(() => {})
  })
}

export default fp(usageRecords, {
  name: 'usage-records',
  fastify: '5.x',
  dependencies: ['ops'],
  decorators: { fastify: ['broker', 'clock', 'config', 'metrics', 'store'] },
})
