/** A topic for each kind, made when it is missing. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Admin, Kafka } from 'kafkajs'
import type { Address } from './kafka-url.ts'
import { isPassing, rootOf, SaidError } from './kafka-errors.ts'

/** A ring that nobody heard for so long has nothing to say any more. Kafka drops whole segments, thus both. */
const CONFIG = { 'retention.ms': '600000', 'segment.ms': '600000', 'cleanup.policy': 'delete' }

/** How often a topic that was made is looked for until its brokers know it. */
const LOOKS = 50
const LOOK_MS = 100

/** Resolves with the number of the topic's partitions once the topic is there. Rejects with the library's error, or a `SaidError` when it is missing and we may not make it. */
export async function ensureTopic(kafka: Kafka, address: Address, topic: string): Promise<number> {
  const admin = kafka.admin()
  try {
    await admin.connect()
    return (await partitionsOf(admin, topic)) ?? (await make(admin, address, topic))
  } finally {
    await admin.disconnect().catch(() => {})
  }
}

/** Null when the broker that was asked does not know the topic, or not yet who leads it. */
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

async function make(admin: Admin, address: Address, topic: string): Promise<number> {
  const configEntries = Object.entries(CONFIG).map(([name, value]) => ({ name, value }))
  try {
    await admin.createTopics({ waitForLeaders: false, topics: [{ topic, numPartitions: address.partitions, replicationFactor: address.replication ?? -1, configEntries }] })
  } catch (error) {
    const { type } = rootOf(error)
    if (type === undefined || isPassing(error)) throw error
    throw new SaidError(`the topic ${topic} is missing, and making it was refused (${type}): ${commandFor(address, topic)}`)
  }
  for (let looks = 0; looks < LOOKS; looks++) {
    const partitions = await partitionsOf(admin, topic)
    if (partitions !== null) return partitions
    await pause(LOOK_MS)
  }
  throw new SaidError(`the topic ${topic} was made, but no broker leads it yet`)
}

function commandFor({ brokers, partitions, replication }: Address, topic: string): string {
  const config = Object.entries(CONFIG).map(([name, value]) => ` --config ${name}=${value}`)
  const factor = replication === null ? '' : ` --replication-factor ${replication}`
  return `kafka-topics.sh --bootstrap-server ${brokers[0]} --create --topic ${topic} --partitions ${partitions}${factor}${config.join('')}`
}
