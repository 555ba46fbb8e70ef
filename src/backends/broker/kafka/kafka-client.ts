/** The client library, kafkajs, with the options that came through frozen, killed and missing brokers, and with one fault mended. */
import { createRequire } from 'node:module'
import { Kafka, logLevel, Partitioners, type ConsumerConfig, type KafkaConfig, type ProducerConfig, type SASLOptions } from 'kafkajs'
import type { Address } from './kafka-url.ts'
import { openLibraryLog, type Log } from './log-throttle.ts'

// A frozen broker is noticed only after requestTimeout.
const CLIENT = { clientId: 'tollgate', connectionTimeout: 1000, requestTimeout: 3000, retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 2 } }

/**
 * No retries: after a stall they repeat messages, and a rejected send is only a ring that comes late. Not idempotent: that lost acknowledged messages when the broker
 * stalled past requestTimeout. No topic is made by asking for it: see topic.ts.
 */
export const PRODUCER: ProducerConfig = { allowAutoTopicCreation: false, retry: { retries: 0 }, createPartitioner: Partitioners.DefaultPartitioner }

/** Whatever stops a consumer ends it (restartOnFailure), so that only one place starts it anew, and none after the end. Without retries a fresh broker would stop it. */
export const CONSUMER: Omit<ConsumerConfig, 'groupId'> = {
  allowAutoTopicCreation: false,
  sessionTimeout: 6000,
  rebalanceTimeout: 6000,
  heartbeatInterval: 1000,
  maxWaitTimeInMs: 250,
  metadataMaxAge: 10_000,
  retry: { initialRetryTime: 200, maxRetryTime: 1000, retries: 3, restartOnFailure: async () => false },
}

export function openClient({ brokers, tls, sasl }: Address, log: Log): Kafka {
  mendTimers()
  const secured: Pick<KafkaConfig, 'ssl' | 'sasl'> = { ...(tls && { ssl: tls }), ...(sasl && { sasl: sasl as SASLOptions }) }
  return new Kafka({ ...CLIENT, ...secured, brokers, logLevel: logLevel.INFO, logCreator: openLibraryLog(log) })
}

type RequestQueue = { pending: unknown[]; throttledUntil: number; scheduleCheckPendingRequests(): void }
let mended = false

/**
 * kafkajs 2.2.4 sets the timer of a throttled connection also when nothing is throttled and nothing waits. Its delay is below zero then, of which Node warns, and when
 * it fires it is set again: each idle connection woke up every millisecond.
 */
function mendTimers(): void {
  if (mended) return
  mended = true
  const { prototype } = createRequire(import.meta.url)('kafkajs/src/network/requestQueue/index.js') as { prototype: RequestQueue }
  const schedule = prototype.scheduleCheckPendingRequests
  prototype.scheduleCheckPendingRequests = function (this: RequestQueue) {
    if (this.pending.length > 0 || this.throttledUntil > Date.now()) schedule.call(this)
  }
}
