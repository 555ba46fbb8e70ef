/**
 * BACKEND: message broker between processes. A message names a task that is ready, or deliveries that are due; the store is the source of truth.
 * A message that is lost, duplicated, late or forged costs latency only, so publishing never fails and never blocks.
 */
import type { Message } from '../../domain/broker-messages.ts'
import type { UsageRecord } from '../../domain/usage-records.ts'

export type Broker = {
  publish(message: Message): void
  /**
   * Publishes usage records as CloudEvents, and resolves once the broker keeps them all. Throws `Unavailable` when that is not known. With none, it only forgets that the last
   * call failed, since another process publishes. Null: nobody else can read them.
   */
  publishUsage: ((records: UsageRecord[]) => Promise<void>) | null
  /**
   * Calls `received` for each message of this kind. Where processes share the broker, one of them receives each message, and again, or
   * another one does, if this process ends before the promise of `received` has resolved.
   */
  consume(kind: Message['kind'], received: (message: Message) => Promise<void>): BrokerConsumer
  /** Whether messages arrive; `detail` is for the operator. Work continues without messages: the store is polled every second. */
  health(): { ok: boolean; detail: string }
  close(): Promise<void>
}

/** Every method is idempotent. */
export type BrokerConsumer = {
  /** Whether it is assigned messages, or is as long as it is paused. The caller polls the store more often while it is not. */
  isReceiving(): boolean
  /** No message is received afterwards. */
  stop(): void
  /** Stops receiving: messages are queued or dropped until `resume`. The caller polls the store when it resumes. */
  pause(): void
  resume(): void
}

/**
 * Messages published; `failed`, which were dropped or not sent (a failed send may have arrived nonetheless); received; and `ignored`, which
 * were received and are not valid. `restarted`: clients that were restarted after a failure.
 */
export type BrokerEvent = 'published' | 'failed' | 'received' | 'ignored' | 'restarted'

type LogLine = (facts: object, message: string) => void
export type BrokerContext = {
  log: { debug: LogLine; info: LogLine; warn: LogLine }
  /** Called for `count` events at once. */
  counted: (event: BrokerEvent, kind: string, count: number) => void
  /** Called after each send to a server, which takes all messages of a kind that wait. */
  sent: (outcome: 'answered' | 'failed', seconds: number) => void
}

const SILENT: BrokerContext = { log: { debug() {}, info() {}, warn() {} }, counted() {}, sent() {} }

/**
 * Opens the broker at `url`: `memory:` or `kafka://host:port,…?…` (docs/kafka.md). Does not wait for a server. Throws an Error of one sentence, without the
 * password, when the address is invalid.
 */
export async function openBroker(url: string, context: Partial<BrokerContext> = {}): Promise<Broker> {
  const complete = { ...SILENT, ...context }
  if (url === 'memory:') {
    const { openMemory } = await import('./memory.ts')
    return openMemory(complete)
  }
  if (url.startsWith('kafka:')) {
    const { openKafka } = await import('./kafka/kafka.ts')
    return openKafka(url, complete)
  }
  throw new TypeError('unknown kind of broker: the address must begin with memory: or kafka://')
}
