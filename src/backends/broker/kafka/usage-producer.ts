/** Publishes usage records to their topic. Unlike messages these are no hints: a batch is published once every in-sync replica has it, or fails as a whole. */
import { usageEvent } from '../../../domain/usage-events.ts'
import { tenantOf } from '../../../domain/plans.ts'
import type { UsageRecord } from '../../../domain/usage-records.ts'
import { Unavailable } from '../../../domain/errors.ts'
import { CONTENT_TYPE } from './cloud-event-schemas.ts'
import { openConnectionState, type ConnectionState } from './connection-warnings.ts'
import { PRODUCER } from './kafka-client.ts'
import { describeError } from './kafka-errors.ts'
import type { KafkaContext } from './producer.ts'
import { ensureTopic } from './topic.ts'

export type UsageProducer = { state: ConnectionState; publish(records: UsageRecord[]): Promise<void>; close(): Promise<void> }

/** How long the broker's default keeps it: consumers may be away for days. */
const TOPIC = { 'cleanup.policy': 'delete' }

/** Connects with the first batch. `publish` throws `Unavailable` when it is not known that the records arrived. */
export function openUsageProducer({ kafka, address, log, counted, sent }: KafkaContext): UsageProducer {
  const topic = `${address.topicPrefix}usage.v1`
  const producer = kafka.producer(PRODUCER)
  const state = openConnectionState(log, { topic })
  let connected = false

  return {
    state,
    async publish(records) {
      if (records.length === 0) return state.recovered()
      const sinceMs = performance.now()
      const ended = (outcome: 'answered' | 'failed') => sent(outcome, (performance.now() - sinceMs) / 1000)
      try {
        if (!connected) {
          await ensureTopic(kafka, address, topic, TOPIC)
          await producer.connect()
        }
        const messages = records.map((record) => ({
          key: tenantOf(record.subscription),
          value: JSON.stringify(usageEvent(record)),
          headers: { 'content-type': CONTENT_TYPE },
        }))
        await producer.send({ topic, acks: -1, timeout: 2000, messages })
        connected = true
        ended('answered')
        counted('published', 'usage', records.length)
        state.recovered()
      } catch (error) {
        connected = false
        ended('failed')
        counted('failed', 'usage', records.length)
        state.failed(describeError(error, { address, topic }), error)
        throw new Unavailable('broker', error)
      }
    },
    close: () => producer.disconnect().catch(() => {}),
  }
}
