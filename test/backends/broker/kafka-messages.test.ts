/** Messages in Kafka as other programs see them: their form, invalid ones, and when offsets are committed. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv } from 'ajv'
import { Kafka, logLevel } from 'kafkajs'
import t, { type Test } from 'tap'
import type { Message } from '../../../src/domain/broker-messages.ts'
import { decodeEvent, encodeEvent } from '../../../src/backends/broker/kafka/cloud-event-schemas.ts'
import { openOffsets } from '../../../src/backends/broker/kafka/offsets.ts'
import { handled, ready } from '../../contracts/broker.ts'
import { kafka } from '../../servers/kafka.ts'
import { healthy, ownPrefix, recordingBroker, until, withAdmin } from './recording-broker.ts'

const SCHEMAS = join(import.meta.dirname, '../../../src/backends/broker/kafka/schemas')
const TRACEPARENT = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`
const WEBHOOK: Message = { type: 'webhook.due', kind: 'webhook', tenant: 'acme', task: 'task-1', key: 'task-1' }

type Received = { key: string; headers: Record<string, string>; event: Record<string, unknown> }

/** Reads a topic from its beginning as another program would, in a group of its own. */
async function readTopic(t: Test, servers: string, topic: string): Promise<Received[]> {
  const consumer = new Kafka({ brokers: servers.split(','), logLevel: logLevel.NOTHING }).consumer({ groupId: `${topic}.reader` })
  const received: Received[] = []
  await consumer.connect()
  t.teardown(() => consumer.disconnect())
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ message: { key, headers, value } }) => {
      const texts = Object.fromEntries(Object.entries(headers ?? {}).map(([name, text]) => [name, String(text)]))
      received.push({ key: String(key), headers: texts, event: JSON.parse(String(value)) as Record<string, unknown> })
    },
  })
  return received
}

function schemaOf(name: string) {
  return new Ajv({ strict: true, allowUnionTypes: true }).compile(JSON.parse(readFileSync(join(SCHEMAS, `${name}.v1.json`), 'utf8')) as object)
}

t.test('Kafka', async (t) => {
  const servers = await kafka(t)
  if (servers === null) return

  async function open(t: Test, query: Record<string, string> = {}) {
    const topicPrefix = ownPrefix(t, servers ?? '')
    return { topicPrefix, broker: await recordingBroker(t, servers ?? '', { topicPrefix, ...query }) }
  }

  /** The committed offsets of a group, as a sum over the partitions. */
  const committed = (topicPrefix: string): Promise<number> =>
    withAdmin(servers, async (admin) => {
      const [offsets] = await admin.fetchOffsets({ groupId: `${topicPrefix}workers.image`, topics: [`${topicPrefix}image`] })
      return (offsets?.partitions ?? []).reduce((sum, { offset }) => sum + Math.max(0, Number(offset)), 0)
    })

  await t.test('a message is a CloudEvent with ids only, by the published schema', async (t) => {
    const { topicPrefix, broker } = await open(t)
    broker.publish(ready('image', 'task-1', { attempt: 7, traceparent: TRACEPARENT }))
    broker.publish(WEBHOOK)
    await until(() => broker.count('published') === 2)
    const [images, webhooks] = [await readTopic(t, servers, `${topicPrefix}image`), await readTopic(t, servers, `${topicPrefix}webhook`)]
    await until(() => images.length > 0 && webhooks.length > 0)
    const [image, webhook] = [images[0], webhooks[0]]
    t.ok(schemaOf('task-ready')(image?.event))
    t.ok(schemaOf('webhook-due')(webhook?.event))
    t.match(image?.headers, { 'content-type': 'application/cloudevents+json; charset=utf-8' })
    const { time, partitionkey, ...rest } = image?.event ?? {}
    t.ok(Date.parse(String(time)) > 1_700_000_000_000)
    t.match(partitionkey, /^acme\/studio#\d+$/)
    t.equal(image?.key, partitionkey)
    t.same(rest, {
      specversion: '1.0',
      id: 'task-1/7',
      type: 'dev.tollgate.task.ready.v1',
      source: '/tollgate',
      subject: 'task-1',
      datacontenttype: 'application/json',
      dataschema: 'https://tollgate.dev/schemas/task-ready.v1.json',
      traceparent: TRACEPARENT,
      data: { tenant: 'acme', subscription: 'acme/studio', task: 'task-1', object: 'generation', verb: 'image', attempt: 7, readyAt: '2023-11-14T22:13:20.000Z' },
    })
  })

  await t.test('an invalid message of a topic is counted and ignored, and later messages are received', async (t) => {
    const { topicPrefix, broker } = await open(t)
    const tasks: string[] = []
    broker.consume('image', async (message) => void (message.type === 'task.ready' && tasks.push(message.task)))
    await healthy(broker)
    const producer = new Kafka({ brokers: servers.split(','), logLevel: logLevel.NOTHING }).producer()
    await producer.connect()
    t.teardown(() => producer.disconnect())
    const valid = JSON.parse(encodeEvent(ready('image', 'task-1'), 0)) as { data: object }
    const values = [
      null,
      '',
      'not JSON',
      '[]',
      JSON.stringify({ ...valid, specversion: '0.3' }),
      JSON.stringify({ ...valid, type: 'dev.tollgate.webhook.due.v1' }),
      JSON.stringify({ ...valid, data: { ...valid.data, verb: 'video' } }),
      JSON.stringify({ ...valid, data: { ...valid.data, tenant: 'other' } }),
      JSON.stringify({ ...valid, data: { ...valid.data, subscription: 'acme/../../studio' } }),
      JSON.stringify({ ...valid, traceparent: 'x'.repeat(5000) }),
      JSON.stringify({ ...valid, padding: 'x'.repeat(10_000) }),
    ]
    await producer.send({ topic: `${topicPrefix}image`, messages: values.map((value) => ({ key: 'any', value })) })
    broker.publish(ready('image', 'task-2'))
    await until(() => tasks.length > 0 && broker.count('ignored') === values.length)
    t.same(tasks, ['task-2'])
    t.equal(broker.count('restarted'), 0)
  })

  await t.test('an offset is committed after its message was handled, and not before', async (t) => {
    const { topicPrefix, broker } = await open(t, { partitions: '1' })
    const { promise, resolve } = Promise.withResolvers<void>()
    let received = 0
    broker.consume('image', (message) => {
      received++
      return message.type === 'task.ready' && message.task === 'task-2' ? promise : handled()
    })
    for (const task of ['task-1', 'task-2', 'task-3']) broker.publish(ready('image', task))
    await until(() => received === 3)
    while ((await committed(topicPrefix)) === 0) await new Promise((resolve) => setTimeout(resolve, 20))
    t.equal(await committed(topicPrefix), 1, 'the first one; the third is after one that is not handled')
    resolve()
    while ((await committed(topicPrefix)) < 3) await new Promise((resolve) => setTimeout(resolve, 20))
    t.equal(await committed(topicPrefix), 3)
  })

  await t.test('a message that was received and not handled is received by another consumer when the first one ends', async (t) => {
    const { topicPrefix, broker } = await open(t, { partitions: '1' })
    const first = await recordingBroker(t, servers, { topicPrefix, partitions: '1' })
    const consumer = first.consume('image', () => new Promise(() => {}))
    broker.publish(ready('image', 'task-1'))
    await until(() => first.count('received') === 1)
    const tasks: string[] = []
    broker.consume('image', async (message) => void (message.type === 'task.ready' && tasks.push(message.task)))
    consumer.stop()
    await until(() => tasks.length > 0)
    t.equal(tasks[0], 'task-1')
  })

  await t.test('a consumer without a partition is not receiving', async (t) => {
    const { topicPrefix, broker } = await open(t, { partitions: '1' })
    const other = await recordingBroker(t, servers, { topicPrefix, partitions: '1' })
    const consumers = [broker, other].map((one) => one.consume('image', handled))
    await Promise.all([healthy(broker), healthy(other)])
    await until(() => consumers.filter((consumer) => consumer.isReceiving()).length === 1)
    t.equal(consumers.filter((consumer) => consumer.isReceiving()).length, 1)
  })
})

t.test('an encoded message decodes to itself, in the topic of its kind only', async (t) => {
  const messages = [ready('image', 'task-1'), ready('background_remove', 'task-1', { object: 'operation', traceparent: TRACEPARENT }), WEBHOOK, { ...WEBHOOK, task: null, key: 'acme' }]
  for (const message of messages) {
    const value = Buffer.from(encodeEvent(message, 0))
    t.same(decodeEvent(message.kind, value), message)
    for (const kind of ['video', 'webhook'].filter((kind) => kind !== message.kind)) t.equal(decodeEvent(kind, value), null)
  }
})

t.test('an offset is committable once all messages before it were handled', async (t) => {
  const offsets = openOffsets()
  const [first, second, third] = ['7', '8', '12'].map((offset) => offsets.received(0, offset))
  const other = offsets.received(1, '100')
  t.same(offsets.committable(), [])
  third?.()
  second?.()
  t.same(offsets.committable(), [])
  other()
  t.same(offsets.committable(), [{ partition: 1, offset: '101' }])
  first?.()
  t.same(offsets.committable(), [{ partition: 0, offset: '13' }, { partition: 1, offset: '101' }])
  offsets.committed([{ partition: 0, offset: '13' }])
  t.same(offsets.committable(), [{ partition: 1, offset: '101' }])
})
