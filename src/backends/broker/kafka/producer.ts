/** Kafka producer of one kind. Each kind has its own: a topic that is missing or forbidden would fail the sends of every kind that shared a producer. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Kafka } from 'kafkajs'
import type { Message } from '../../../domain/broker-messages.ts'
import { startSpan, type Attributes, type Span } from '../../../telemetry/tracing.ts'
import type { BrokerContext } from '../broker.ts'
import { CONTENT_TYPE, encodeEvent } from './cloud-event-schemas.ts'
import type { Address } from './kafka-url.ts'
import { PRODUCER } from './kafka-client.ts'
import { describeError } from './kafka-errors.ts'
import { openConnectionState, type ConnectionState } from './connection-warnings.ts'
import { openBackoff } from './backoff.ts'
import { ensureTopic } from './topic.ts'

/** What producers and consumers share. */
export type KafkaContext = { kafka: Kafka; address: Address } & BrokerContext

export type Producer = { state: ConnectionState; publish(message: Message): void; close(): Promise<void> }

type Queued = { message: Message; span: Span }

const MAX_BATCH = 500
const MAX_QUEUED = 5000
/** Pause after a send. Without it each send under load would contain one or two messages, and Kafka would use as much CPU as the work. */
const LINGER_MS = 20
/** Time to send the queued messages at shutdown. */
const FLUSH_MS = 1000

/** Attributes by the semantic conventions for messaging. */
export function messaging(topic: string, operation: 'send' | 'process'): Attributes {
  return {
    'messaging.system': 'kafka',
    'messaging.destination.name': topic,
    'messaging.operation.name': operation,
    'messaging.operation.type': operation,
  }
}

/**
 * One send is in flight at a time; messages published meanwhile, or in the pause after it, go into the next. The first message is not delayed. The messages of
 * a failed send are lost except for one, which is retried until it is sent: it detects the end of an outage. `published` and `failed` add up
 * to the messages given.
 */
export function openProducer({ kafka, address, log, counted, sent }: KafkaContext, kind: string): Producer {
  const topic = address.topicPrefix + kind
  const producer = kafka.producer(PRODUCER)
  const state = openConnectionState(log, { topic })
  const closing = new AbortController()
  const backoff = openBackoff(closing.signal)
  let queued: Queued[] = []
  let connected = false
  let stopped = false
  let busy = false
  let flushing = Promise.resolve()

  async function flush(): Promise<void> {
    while (queued.length > 0 && !closing.signal.aborted) {
      await send(queued.splice(0, MAX_BATCH))
      if (!stopped) await pause(LINGER_MS)
    }
    busy = false
  }

  async function send(messages: Queued[]): Promise<void> {
    const sinceMs = performance.now()
    const ended = (outcome: 'answered' | 'failed') => sent(outcome, (performance.now() - sinceMs) / 1000)
    try {
      if (!connected) {
        await ensureTopic(kafka, address, topic)
        await producer.connect()
      }
      await producer.send({ topic, acks: -1, timeout: 2000, messages: messages.map(record) })
      connected = true
      ended('answered')
      counted('published', kind, messages.length)
      for (const { span } of messages) span.end()
      state.recovered()
      backoff.reset()
    } catch (error) {
      connected = false
      ended('failed')
      queued.unshift(...messages.splice(-1))
      lose(messages, error)
      state.failed(describeError(error, { address, topic }), error)
      await backoff.next()
    }
  }

  /** A span of this send continues the trace; without one, the message has that of its task. */
  function record({ message, span }: Queued) {
    const event = span.traceparent === null ? message : { ...message, traceparent: span.traceparent }
    return { key: message.key, value: encodeEvent(event, Date.now()), headers: { 'content-type': CONTENT_TYPE } }
  }

  function lose(messages: Queued[], why: unknown): void {
    if (messages.length > 0) counted('failed', kind, messages.length)
    for (const { span } of messages) {
      span.fail(why)
      span.end()
    }
  }

  return {
    state,
    publish(message) {
      if (stopped || queued.length >= MAX_QUEUED) return counted('failed', kind, 1)
      queued.push({ message, span: startSpan(`send ${topic}`, { kind: 'producer', within: true, attributes: messaging(topic, 'send') }) })
      if (busy) return
      busy = true
      flushing = new Promise((resolve) => setImmediate(resolve)).then(flush)
    },
    async close() {
      stopped = true
      const timer = setTimeout(() => closing.abort(), state.problem() === null ? FLUSH_MS : 0)
      await flushing
      clearTimeout(timer)
      lose(queued, 'closed')
      queued = []
      await producer.disconnect().catch(() => {})
    },
  }
}
