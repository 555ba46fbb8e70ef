/**
 * BACKEND: who should wake up. A doorbell, never the truth: a ring says that there is work of a kind, and the one who hears it asks the store. A ring that is lost,
 * doubled or late costs latency only, so ringing never fails and never waits.
 */
export type Broker = {
  /** Says that there is work of this kind. `id` names the task, for spreading and for the log. */
  publish(kind: string, id: string): void
  /** Calls `heard` for the rings of these kinds that are for this listener. Where processes share the broker, each ring is for one of them. */
  consume(kinds: readonly string[], heard: (kind: string) => void): BrokerConsumer
  /** Whether rings arrive; `detail` is for the operator. Work goes on where they do not: it is found a moment later. */
  health(): { ok: boolean; detail: string }
  close(): Promise<void>
}

/** All three may be called at any time, and again. */
export type BrokerConsumer = {
  /** `heard` is not called any more. */
  stop(): void
  /** Says that nothing more can be taken up: rings wait or are dropped until `resume`. Whoever resumes looks for work by itself. */
  pause(): void
  resume(): void
}

/** What happens to rings: sent, lost on the way, heard. And how often what hears them was built anew after a failure. */
export type BrokerEvent = 'rung' | 'lost' | 'heard' | 'rebuilt'

type Line = (facts: object, message: string) => void
export type BrokerSurroundings = {
  log: { debug: Line; info: Line; warn: Line }
  /** Told of every event, `count` of them at once. */
  counted: (event: BrokerEvent, kind: string, count: number) => void
}

const NOBODY: BrokerSurroundings = { log: { debug() {}, info() {}, warn() {} }, counted() {} }

/**
 * Opens the broker named by `url`: `memory:` or `kafka://host:port,…?…` (docs/kafka.md). Never waits for a server. Throws an Error of one sentence, which holds no
 * password, when the address makes no sense.
 */
export async function openBroker(url: string, surroundings: Partial<BrokerSurroundings> = {}): Promise<Broker> {
  const whole = { ...NOBODY, ...surroundings }
  if (url === 'memory:') {
    const { openMemory } = await import('./memory.ts')
    return openMemory(whole)
  }
  if (url.startsWith('kafka:')) {
    const { openKafka } = await import('./kafka/kafka.ts')
    return openKafka(url, whole)
  }
  throw new TypeError('no broker of that kind: an address begins with memory: or kafka://')
}
