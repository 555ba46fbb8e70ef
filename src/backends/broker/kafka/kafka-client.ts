/** The client library, kafkajs: options that survive frozen, killed and missing brokers, and a patch for one bug. */
import { createRequire } from 'node:module'
import { Kafka, logLevel, Partitioners, type ConsumerConfig, type KafkaConfig, type ProducerConfig, type SASLOptions } from 'kafkajs'
import type { BrokerContext } from '../broker.ts'
import type { Address } from './kafka-url.ts'
import { openLibraryLog } from './library-log.ts'

// A frozen broker is detected only after requestTimeout.
const CLIENT = {
  clientId: 'tollgate',
  connectionTimeout: 1000,
  requestTimeout: 3000,
  retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 2 },
}

/**
 * No retries: after a stall they duplicate messages, and a rejected send only delays one. Not idempotent: that lost acknowledged messages
 * when the broker stalled past requestTimeout. Topics are created by topic.ts, never automatically.
 */
export const PRODUCER: ProducerConfig = {
  allowAutoTopicCreation: false,
  retry: { retries: 0 },
  createPartitioner: Partitioners.DefaultPartitioner,
}

/**
 * Any failure ends the consumer (restartOnFailure), so that only consumer.ts restarts it, and nothing does after the stop. Without retries
 * a broker that has just started would end it.
 */
export const CONSUMER: Omit<ConsumerConfig, 'groupId'> = {
  allowAutoTopicCreation: false,
  sessionTimeout: 6000,
  rebalanceTimeout: 6000,
  heartbeatInterval: 1000,
  maxWaitTimeInMs: 250,
  metadataMaxAge: 10_000,
  retry: { initialRetryTime: 200, maxRetryTime: 1000, retries: 3, restartOnFailure: async () => false },
}

export function openClient({ brokers, tls, sasl }: Address, log: BrokerContext['log']): Kafka {
  patchTimers()
  const secured: Pick<KafkaConfig, 'ssl' | 'sasl'> = { ...(tls && { ssl: tls }), ...(sasl && { sasl: sasl as SASLOptions }) }
  return new Kafka({ ...CLIENT, ...secured, brokers, logLevel: logLevel.INFO, logCreator: openLibraryLog(log) })
}

type RequestQueue = { pending: unknown[]; throttledUntil: number; scheduleCheckPendingRequests(): void }
let patched = false

/**
 * kafkajs 2.2.4 sets the throttling timer also when nothing is throttled and no request is pending. Its delay is negative then, of which
 * Node warns, and it is set again when it fires: each idle connection woke up every millisecond.
 */
function patchTimers(): void {
  if (patched) return
  patched = true
  const { prototype } = createRequire(import.meta.url)('kafkajs/src/network/requestQueue/index.js') as { prototype: RequestQueue }
  const schedule = prototype.scheduleCheckPendingRequests
  prototype.scheduleCheckPendingRequests = function (this: RequestQueue) {
    if (this.pending.length > 0 || this.throttledUntil > Date.now()) schedule.call(this)
  }
}
