/**
 * BACKEND: message broker that wakes workers and dispatchers. A message says that there may be work of a kind; the store is the source of truth.
 * A message that is lost, duplicated or late costs latency only, so publishing never fails and never blocks.
 */
export type Broker = {
  /** Publishes that there is work of this kind. `id` is the task's: the message key, and what the log shows. */
  publish(kind: string, id: string): void
  /** Calls `received` for each message of these kinds. Where processes share the broker, one of them receives each message. */
  consume(kinds: readonly string[], received: (kind: string) => void): BrokerConsumer
  /** Whether messages arrive; `detail` is for the operator. Work continues without messages: the store is polled every second. */
  health(): { ok: boolean; detail: string }
  close(): Promise<void>
}

/** Every method is idempotent. */
export type BrokerConsumer = {
  /** No message is received afterwards. */
  stop(): void
  /** Stops receiving: messages are queued or dropped until `resume`. The caller polls the store when it resumes. */
  pause(): void
  resume(): void
}

/** Values of the label `event` of `tollgate_broker_rings_total`: messages published, lost and received, and clients rebuilt after a failure. */
export type BrokerEvent = 'rung' | 'lost' | 'heard' | 'rebuilt'

type LogLine = (facts: object, message: string) => void
export type BrokerContext = {
  log: { debug: LogLine; info: LogLine; warn: LogLine }
  /** Called for `count` events at once. */
  counted: (event: BrokerEvent, kind: string, count: number) => void
}

const SILENT: BrokerContext = { log: { debug() {}, info() {}, warn() {} }, counted() {} }

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
