/** The client library, kafkajs: options that survive frozen, killed and missing brokers, and a patch for one bug. */
import { createRequire } from 'node:module'
import { connect, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import {
  Kafka,
  logLevel,
  Partitioners,
  type ConsumerConfig,
  type KafkaConfig,
  type ProducerConfig,
  type SASLOptions,
  type ISocketFactory,
} from 'kafkajs'
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

/** `end` ends its connections, whatever the brokers do; there are no new ones afterwards. */
export function openClient({ brokers, tls, sasl }: Address, log: BrokerContext['log']): { kafka: Kafka; end(): void } {
  patchTimers()
  const secured: Pick<KafkaConfig, 'ssl' | 'sasl'> = { ...(tls && { ssl: tls }), ...(sasl && { sasl: sasl as SASLOptions }) }
  const { socketFactory, end } = openSockets()
  const kafka = new Kafka({ ...CLIENT, ...secured, brokers, socketFactory, logLevel: logLevel.INFO, logCreator: openLibraryLog(log) })
  return { kafka, end }
}

const KEEP_ALIVE_MS = 60_000
/** How long a broker may take to end its half of a connection. */
const HALF_OPEN_MS = 1_000

/**
 * The library only ends its half of a connection, and only once its requests are answered: a frozen broker never ends the other half, and
 * each attempt to reach it would leave a socket. Here a connection that it ends is closed, and so are all at the end. One that it gave up
 * before it was connected is not said to be: the library would send on it for ever.
 */
export function openSockets(): { socketFactory: ISocketFactory; end(): void } {
  const open = new Set<Socket>()
  let hasEnded = false
  return {
    socketFactory({ host, port, ssl, onConnect }) {
      if (hasEnded) throw new Error('the client has ended')
      const name = isIP(host) === 0 ? { servername: host } : {}
      const connected = (): unknown => socket.writableEnded || onConnect()
      const socket: Socket = ssl ? connectTls({ host, port, ...name, ...ssl }, connected) : connect({ host, port }, connected)
      socket.setKeepAlive(true, KEEP_ALIVE_MS)
      // The library waits for the end of a healthy broker's half.
      socket.once('finish', () => setTimeout(() => socket.destroy(), HALF_OPEN_MS).unref())
      open.add(socket)
      return socket.once('close', () => open.delete(socket))
    },
    end() {
      hasEnded = true
      // With an error, which ends the requests too.
      for (const socket of open) socket.destroy(new Error('the client has ended'))
    },
  }
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
