/** Kafka brokers that record their events and warnings. */
import { randomUUID } from 'node:crypto'
import { Kafka, logLevel } from 'kafkajs'
import type { Test } from 'tap'
import { openBroker, type Broker, type BrokerEvent } from '../../../src/backends/broker/broker.ts'
import { ready } from '../../contracts/broker.ts'

export type RecordingBroker = Broker & {
  url: string
  count(event: BrokerEvent): number
  /** Seconds of the sends that ended so. */
  sends(outcome: 'answered' | 'failed'): number[]
  /** How many messages were published. */
  published(): number
  /** Warnings only. */
  warnings: { facts: Record<string, unknown>; message: string }[]
}

/** A prefix for a test's topics and groups. */
export function prefix(): string {
  return `test-${randomUUID()}.`
}

/** Opens a broker that is closed with the test. `query` goes into its address. */
export async function recordingBroker(t: Test, servers: string, query: Record<string, string>): Promise<RecordingBroker> {
  const url = `kafka://${servers}?${new URLSearchParams({ partitions: '2', ...query })}`
  const counts: Record<BrokerEvent, number> = { published: 0, failed: 0, received: 0, ignored: 0, restarted: 0 }
  const sends: Record<'answered' | 'failed', number[]> = { answered: [], failed: [] }
  const warnings: RecordingBroker['warnings'] = []
  const log = { debug() {}, info() {}, warn: (facts: object, message: string) => void warnings.push({ facts: { ...facts }, message }) }
  const broker = await openBroker(url, { log, counted: (event, _kind, count) => (counts[event] += count), sent: (outcome, seconds) => sends[outcome].push(seconds) })
  t.teardown(() => broker.close())
  let published = 0
  const publish: Broker['publish'] = (message) => {
    published++
    broker.publish(message)
  }
  return { ...broker, publish, url, warnings, count: (event) => counts[event], sends: (outcome) => sends[outcome], published: () => published }
}

/** Resolves once the broker is healthy: all consumers have joined. */
export async function healthy(broker: Broker): Promise<void> {
  await until(() => broker.health().ok)
}

/** Resolves when the condition holds. The test's own time limit is the only one. */
export async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 10))
}

/** Publishes until a message is received: some may be lost, but not all. */
export async function publishUntilReceived(producer: RecordingBroker, consumer: RecordingBroker): Promise<void> {
  const before = consumer.count('received')
  const publishing = setInterval(() => producer.publish(ready('image', 'task')), 100)
  await until(() => consumer.count('received') > before)
  clearInterval(publishing)
}

/** Runs `use` with an admin client, as an operator would. */
export async function withAdmin<T>(servers: string, use: (admin: ReturnType<Kafka['admin']>) => Promise<T>, options: object = {}): Promise<T> {
  const admin = new Kafka({ brokers: servers.split(','), logLevel: logLevel.NOTHING, ...options }).admin()
  await admin.connect()
  try {
    return await use(admin)
  } finally {
    await admin.disconnect()
  }
}

/** A prefix whose topics and groups are dropped when the test ends. */
export function ownPrefix(t: Test, servers: string): string {
  const own = prefix()
  t.teardown(() =>
    withAdmin(servers, async (admin) => {
      const topics = (await admin.listTopics()).filter((topic) => topic.startsWith(own))
      if (topics.length > 0) await admin.deleteTopics({ topics })
      const { groups } = await admin.listGroups()
      const leftover = groups.map(({ groupId }) => groupId).filter((group) => group.startsWith(own))
      // A member that was killed is still in its group until its session ends: Kafka removes such a group.
      if (leftover.length > 0) await admin.deleteGroups(leftover).catch(() => {})
    }),
  )
  return own
}
