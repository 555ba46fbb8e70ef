/** Broker among processes over Kafka, one topic for each kind. Best effort: workers and dispatchers poll the store as well. */
import { readFileSync } from 'node:fs'
import type { Broker, BrokerContext, BrokerConsumer } from '../broker.ts'
import { readAddress } from './kafka-url.ts'
import { openClient } from './kafka-client.ts'
import { describeError } from './kafka-errors.ts'
import { openConsumer, type Consumer } from './consumer.ts'
import { openConnectionState, type ConnectionState } from './connection-warnings.ts'
import { openBackoff } from './backoff.ts'
import { openUsageProducer } from './usage-producer.ts'
import { openProducer, type KafkaContext, type Producer } from './producer.ts'

/** Close timeout. What is still running then loses its connections. */
const CLOSE_MS = 5000

/** Resolves at once, whether or not Kafka is reachable. Throws an Error of one sentence when the address is invalid. */
export async function openKafka(url: string, { log, counted, sent }: BrokerContext): Promise<Broker> {
  const address = readAddress(url, (file) => readFileSync(file, 'utf8'))
  if (address.sasl?.mechanism === 'plain' && !address.tls)
    log.warn({ event: 'kafka_password_unencrypted' }, 'kafka password is sent unencrypted: sasl=plain without tls=true')
  const { kafka, end } = openClient(address, log)
  const context: KafkaContext = { kafka, address, log, counted, sent }
  const producers = new Map<string, Producer>()
  const consumers = new Set<Consumer>()
  const usage = openUsageProducer(context)
  const connectionCheck = checkConnection(context)
  let closed: Promise<void> | null = null

  const producerOf = (kind: string): Producer => {
    const producer = producers.get(kind) ?? openProducer(context, kind)
    producers.set(kind, producer)
    return producer
  }

  async function closeAll(): Promise<void> {
    for (const consumer of consumers) consumer.stop()
    const all = Promise.all([
      connectionCheck.close(),
      usage.close(),
      ...[...producers.values()].map((producer) => producer.close()),
      ...[...consumers].map(({ stopped }) => stopped),
    ])
    let timer: NodeJS.Timeout | undefined
    await Promise.race([all, new Promise((resolve) => (timer = setTimeout(resolve, CLOSE_MS)))])
    clearTimeout(timer)
    end()
  }

  return {
    publish(message) {
      if (closed) counted('failed', message.kind, 1)
      else producerOf(message.kind).publish(message)
    },
    publishUsage: usage.publish,
    consume(kind, received): BrokerConsumer {
      if (closed) return { isReceiving: () => false, stop() {}, pause() {}, resume() {} }
      const consumer = openConsumer(context, kind, received)
      consumers.add(consumer)
      void consumer.stopped.then(() => consumers.delete(consumer))
      return consumer
    },
    health() {
      if (closed) return { ok: false, detail: 'closed' }
      const problems = [connectionCheck, usage, ...producers.values(), ...consumers].map(({ state }) => state.problem())
      const detail = [...new Set(problems.filter((problem) => problem !== null))].join('; ')
      return detail === '' ? { ok: true, detail: `Kafka at ${address.brokers.join(', ')}` } : { ok: false, detail }
    },
    close() {
      closed ??= closeAll()
      return closed
    },
  }
}

/** Connects once at the start, so that refused credentials are known before the first message. */
function checkConnection({ kafka, address, log }: KafkaContext): { state: ConnectionState; close(): Promise<void> } {
  const state = openConnectionState(log, {}, 'connecting')
  const closing = new AbortController()
  const backoff = openBackoff(closing.signal)
  const attempt = async () => {
    const admin = kafka.admin()
    try {
      await admin.connect()
      await admin.describeCluster()
      state.recovered()
      return true
    } catch (error) {
      if (!closing.signal.aborted) state.failed(describeError(error, { address }), error)
      return false
    } finally {
      await admin.disconnect().catch(() => {})
    }
  }
  const connected = (async () => {
    while (!closing.signal.aborted && !(await attempt())) await backoff.next()
  })()
  return {
    state,
    close() {
      closing.abort()
      return connected
    },
  }
}
