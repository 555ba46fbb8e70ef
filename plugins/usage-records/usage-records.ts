/** Usage records after their charge: those that a process left in the records of plans are stored, all are published to the broker, and old ones are removed. */
import { randomUUID } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'

const PERIOD_MS = 1_000
const LEASE_MS = 5_000
/** A process stores what it made within moments: what is older was left by one that ended, or could not. */
const LEFT_MS = 10_000
const BATCH = 500
/** Batches in one period; the rest waits for the next. */
const MOST_BATCHES = 20

async function usageRecords(app: FastifyInstance): Promise<void> {
  const { store, clock, broker, config, log } = app
  const owner = randomUUID()

  /** Published before it is marked: a process that ends in between publishes it again, under the same id. */
  async function publishBatch(publish: NonNullable<typeof broker.publishUsage>): Promise<number> {
    const records = await store.unpublishedUsage(BATCH)
    if (records.length === 0) return 0
    await publish(records)
    await store.usagePublished(records)
    return records.length
  }

  /** Repeats while batches come back full. */
  async function untilDone(batch: () => Promise<number>): Promise<void> {
    for (let batches = 0; batches < MOST_BATCHES && (await batch()) === BATCH;) batches++
  }

  async function pass(): Promise<void> {
    const now = clock()
    if (!(await store.takeLease('usage-records', owner, now + LEASE_MS, now))) return
    await untilDone(() => store.storeOutboxes(now - LEFT_MS, BATCH))
    const { publishUsage } = broker
    if (publishUsage) await untilDone(() => publishBatch(publishUsage))
    await untilDone(() => store.removeUsage(now - config.USAGE_MS, BATCH))
  }

  const task = periodicTask(PERIOD_MS, pass, (err) =>
    log.warn({ event: 'usage_records_failed', err }, 'usage records not stored or published, will be retried'),
  )
  app.addHook('onReady', task.start)
  app.addHook('onClose', task.cancel)
}

export default fp(usageRecords, {
  name: 'usage-records',
  fastify: '5.x',
  dependencies: ['ops'],
  decorators: { fastify: ['broker', 'clock', 'config', 'store'] },
})
