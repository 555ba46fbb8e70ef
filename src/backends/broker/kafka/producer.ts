/** Sends the rings of one kind. Each kind has a producer of its own: a topic that is missing or forbidden would fail the sends of all that share one. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Kafka } from 'kafkajs'
import type { BrokerSurroundings } from '../broker.ts'
import type { Address } from './kafka-url.ts'
import { PRODUCER } from './kafka-client.ts'
import { sentenceOf } from './kafka-errors.ts'
import { openTrouble, type Trouble } from './log-throttle.ts'
import { openPauses } from './backoff.ts'
import { ensureTopic } from './topic.ts'

/** What ringers and listeners stand on. */
export type Bell = { kafka: Kafka; address: Address } & BrokerSurroundings

export type Producer = { trouble: Trouble; publish(id: string): void; close(): Promise<void> }

const MOST_AT_ONCE = 500
const MOST_WAITING = 5000
/** After a send: under load each would else wake every worker for one or two tasks, and Kafka would take as much of a machine as the work. */
const REST_MS = 20
/** How long the rings that wait get when the program stops. */
const LAST_MS = 1000

/**
 * One send is under way at a time, and takes along whatever was rung meanwhile and in the rest that follows it; a first ring waits for nothing. What a send that failed held is lost, but for one ring, which is tried until it gets
 * through: it wakes the workers after an outage, and is how we learn that there is none any more. `rung` and `lost` add up to what was rung.
 */
export function openProducer({ kafka, address, log, counted }: Bell, kind: string): Producer {
  const topic = address.topicPrefix + kind
  const producer = kafka.producer(PRODUCER)
  const trouble = openTrouble(log, { topic })
  const closing = new AbortController()
  const pauses = openPauses(closing.signal)
  let waiting: string[] = []
  let connected = false
  let stopped = false
  let busy = false
  let flushing = Promise.resolve()

  async function flush(): Promise<void> {
    while (waiting.length > 0 && !closing.signal.aborted) {
      await send(waiting.splice(0, MOST_AT_ONCE))
      if (!stopped) await pause(REST_MS)
    }
    busy = false
  }

  async function send(ids: string[]): Promise<void> {
    try {
      if (!connected) {
        await ensureTopic(kafka, address, topic)
        await producer.connect()
      }
      await producer.send({ topic, acks: -1, timeout: 2000, messages: ids.map((id) => ({ key: id, value: null })) })
      connected = true
      counted('rung', kind, ids.length)
      trouble.ends()
      pauses.begin()
    } catch (error) {
      connected = false
      waiting.unshift(...ids.splice(-1))
      if (ids.length > 0) counted('lost', kind, ids.length)
      trouble.begins(sentenceOf(error, { address, topic }), error)
      await pauses.next()
    }
  }

  return {
    trouble,
    publish(id) {
      if (stopped || waiting.length >= MOST_WAITING) return counted('lost', kind, 1)
      waiting.push(id)
      if (busy) return
      busy = true
      flushing = new Promise((resolve) => setImmediate(resolve)).then(flush)
    },
    async close() {
      stopped = true
      const late = setTimeout(() => closing.abort(), trouble.sentence() === null ? LAST_MS : 0)
      await flushing
      clearTimeout(late)
      if (waiting.length > 0) counted('lost', kind, waiting.length)
      waiting = []
      await producer.disconnect().catch(() => {})
    },
  }
}
