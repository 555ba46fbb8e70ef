/** The usage records that arrived at Kafka, as a billing system reads them. */
import { Kafka, logLevel } from 'kafkajs'

/** Reads the topic of an installation from its beginning, by its BROKER_URL. */
export async function readUsageTopic(brokerUrl: string): Promise<{ ids: ReadonlySet<string>; messages(): number; close(): Promise<void> }> {
  const { host, searchParams } = new URL(brokerUrl)
  const prefix = searchParams.get('topicPrefix') ?? 'tollgate.'
  const consumer = new Kafka({ brokers: host.split(','), logLevel: logLevel.NOTHING }).consumer({ groupId: `${prefix}billing` })
  const ids = new Set<string>()
  let messages = 0
  await consumer.connect()
  await consumer.subscribe({ topic: `${prefix}usage.v1`, fromBeginning: true })
  await consumer.run({
    async eachMessage({ message }) {
      messages++
      ids.add((JSON.parse(String(message.value)) as { id: string }).id)
    },
  })
  return { ids, messages: () => messages, close: () => consumer.disconnect() }
}
