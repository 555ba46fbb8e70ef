import { Ajv } from 'ajv'
import { Kafka, logLevel } from 'kafkajs'
import t from 'tap'
import codingSchema from '../../../src/backends/broker/kafka/schemas/usage-coding.v1.json' with { type: 'json' }
import mediaSchema from '../../../src/backends/broker/kafka/schemas/usage-media.v1.json' with { type: 'json' }
import type { UsageRecord } from '../../../src/domain/usage-records.ts'
import { eventually } from '../../flows/eventually.ts'
import { kafka } from '../../servers/kafka.ts'
import { T0, taskId } from '../../contracts/store/acme.ts'
import { openBroker } from '../../../src/backends/broker/broker.ts'
import { openClient } from '../../../src/backends/broker/kafka/kafka-client.ts'
import { readAddress } from '../../../src/backends/broker/kafka/kafka-url.ts'
import { openUsageProducer } from '../../../src/backends/broker/kafka/usage-producer.ts'
import { ownPrefix, recordingBroker, until } from './recording-broker.ts'

const RECORDS: UsageRecord[] = [
  { id: taskId(1), subscription: 'acme/code', keyId: 'key-1', at: T0, usage: { input: 100, cachedInput: 40, output: 7 }, charged: 83, isEstimated: false },
  { id: taskId(2), subscription: 'acme/code', keyId: 'key-1', at: T0 + 1, usage: null, charged: 500, isEstimated: true },
  { id: taskId(3), subscription: 'globex/studio', keyId: 'key-2', at: T0 + 2, kind: 'video', cost: 40_033 },
]

t.test('usage records arrive on their topic as CloudEvents by tenant, or the broker says that they did not', async (t) => {
  const servers = await kafka(t)
  if (servers === null) return
  const topicPrefix = ownPrefix(t, servers)
  const broker = await recordingBroker(t, servers, { topicPrefix })
  const { publishUsage } = broker
  if (!publishUsage) throw new TypeError('Kafka publishes no usage records')
  // A new topic has a leader a moment before that broker knows it. A part of a batch that failed may have arrived: consumers know it by its id.
  await eventually('the leader to take records', () => publishUsage(RECORDS).then(() => true, () => null))
  const consumer = new Kafka({ brokers: servers.split(','), logLevel: logLevel.NOTHING }).consumer({ groupId: `${topicPrefix}billing` })
  t.teardown(() => consumer.disconnect())
  await consumer.connect()
  await consumer.subscribe({ topic: `${topicPrefix}usage.v1`, fromBeginning: true })
  const byId = new Map<unknown, { key: string; event: Record<string, unknown> }>()
  await consumer.run({ eachMessage: async ({ message }) => {
    const event = JSON.parse(String(message.value))
    byId.set(event.id, { key: String(message.key), event })
  } })
  await until(() => byId.size === 3)
  const received = [...byId.values()].sort((a, b) => (String(a.event['id']) < String(b.event['id']) ? -1 : 1))
  t.same(received.map(({ key }) => key), ['acme', 'acme', 'globex'])
  t.match(received[0]?.event, {
    id: taskId(1), type: 'dev.tollgate.usage.coding.v1', subject: 'acme', time: '2026-01-05T00:00:00.000Z',
    data: { tenant: 'acme', plan: 'code', key: 'key-1', input_tokens: 100, cached_input_tokens: 40, output_tokens: 7, charged_tokens: 83, estimated: false },
  })
  t.match(received[1]?.event, { data: { input_tokens: 0, output_tokens: 0, charged_tokens: 500, estimated: true } })
  t.match(received[2]?.event, { type: 'dev.tollgate.usage.media.v1', data: { task: taskId(3), kind: 'video', cost: '0.040033' } })
  const ajv = new Ajv()
  const [isCoding, isMedia] = [ajv.compile(codingSchema), ajv.compile(mediaSchema)]
  t.same([isCoding(received[0]?.event), isCoding(received[1]?.event), isMedia(received[2]?.event)], [true, true, true], 'as their schemas say')
  await broker.close()
  await t.rejects(publishUsage(RECORDS), { name: 'Unavailable' }, 'a closed broker keeps nothing')
})

t.test('a process that publishes no more usage records is no longer degraded by those that it failed to', async (t) => {
  const address = readAddress('kafka://127.0.0.1:1', () => '')
  const log = { debug() {}, info() {}, warn() {} }
  const usage = openUsageProducer({ kafka: openClient(address, log).kafka, address, log, counted() {}, sent() {} })
  t.teardown(() => usage.close())
  await t.rejects(usage.publish(RECORDS), { name: 'Unavailable' })
  t.equal(usage.state.problem(), '127.0.0.1:1 does not answer (ECONNREFUSED)')
  await usage.publish([])
  t.equal(usage.state.problem(), null)
})

t.test('without Kafka nothing is published', async (t) => {
  t.equal((await openBroker('memory:')).publishUsage, null)
})
