/** The topic of one kind: created when it is missing. */
import { setTimeout as pause } from 'node:timers/promises'
import kafkajs, { type Admin, type Kafka } from 'kafkajs'
import type { Address } from './kafka-url.ts'
import { isTransient, rootOf, unreadable, DescribedError } from './kafka-errors.ts'

type TopicConfig = Record<string, string>

/** Of messages: a day, in which an operator can read what was published. Kafka removes whole segments, hence both settings. */
const CONFIG: TopicConfig = {
  'retention.ms': '86400000',
  'segment.ms': '3600000',
  'cleanup.policy': 'delete',
  'compression.type': 'producer',
}
/** What the client library can read. `producer`: as it was sent, which is uncompressed. */
const READABLE = ['producer', 'uncompressed', 'gzip']

/** How often, and how many times, a new topic is looked up until a broker leads it. */
const LOOKUP_MS = 100
const MAX_LOOKUPS = 50

/**
 * Resolves with the topic's number of partitions. Rejects with the library's error, or a `DescribedError` when the topic is missing and may not be created, or its broker compresses
 * messages in a way that cannot be read.
 */
export async function ensureTopic(kafka: Kafka, address: Address, topic: string, config = CONFIG): Promise<number> {
  const admin = kafka.admin()
  try {
    await admin.connect()
    const partitions = await partitionsOf(admin, topic)
    if (partitions === null) return await create(admin, address, topic, config)
    if ('compression.type' in config) await assertReadable(admin, topic)
    return partitions
  } finally {
    await admin.disconnect().catch(() => {})
  }
}

/** Null when the broker does not know the topic, or does not know its leader yet. */
async function partitionsOf(admin: Admin, topic: string): Promise<number | null> {
  try {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0]?.partitions.length ?? null
  } catch (error) {
    const { type } = rootOf(error)
    if (type === 'UNKNOWN_TOPIC_OR_PARTITION' || type === 'LEADER_NOT_AVAILABLE') return null
    throw error
  }
}

/** Passes where the broker does not say: that takes the right DescribeConfigs. A consumer finds out by the first message. */
async function assertReadable(admin: Admin, topic: string): Promise<void> {
  const resources = [{ type: kafkajs.ConfigResourceTypes.TOPIC, name: topic, configNames: ['compression.type'] }]
  const described = await admin.describeConfigs({ includeSynonyms: false, resources }).catch(() => null)
  const compression = described?.resources[0]?.configEntries[0]?.configValue ?? 'producer'
  if (!READABLE.includes(compression)) throw new DescribedError(unreadable(topic, `compression.type=${compression}`))
}

async function create(admin: Admin, address: Address, topic: string, config: TopicConfig): Promise<number> {
  const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
  try {
    await admin.createTopics({
      waitForLeaders: false,
      topics: [{ topic, numPartitions: address.partitions, replicationFactor: address.replication ?? -1, configEntries }],
    })
  } catch (error) {
    const { type } = rootOf(error)
    if (type === undefined || isTransient(error)) throw error
    throw new DescribedError(`the topic ${topic} is missing and could not be created (${type}): ${commandFor(address, topic, config)}`)
  }
  for (let lookups = 0; lookups < MAX_LOOKUPS; lookups++) {
    const partitions = await partitionsOf(admin, topic)
    if (partitions !== null) return partitions
    await pause(LOOKUP_MS)
  }
  throw new DescribedError(`the topic ${topic} was created but has no leader yet`)
}

function commandFor({ brokers, partitions, replication }: Address, topic: string, config: TopicConfig): string {
  const options = Object.entries(config).map(([name, value]) => ` --config ${name}=${value}`)
  const factor = replication === null ? '' : ` --replication-factor ${replication}`
  return `kafka-topics.sh --bootstrap-server ${brokers[0]} --create --topic ${topic} --partitions ${partitions}${factor}${options.join('')}`
}
