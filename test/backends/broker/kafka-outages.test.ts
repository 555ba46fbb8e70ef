/** Outages of Kafka: a broker that is killed or frozen. Messages arrive again without a restart. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import type { ISocketFactoryArgs } from 'kafkajs'
import t, { type Test } from 'tap'
import { openSockets } from '../../../src/backends/broker/kafka/kafka-client.ts'
import { ownKafka } from '../../servers/kafka.ts'
import { recordingBroker, healthy, prefix, publishUntilReceived, until, withAdmin, type RecordingBroker } from './recording-broker.ts'
import { member } from './group-member.ts'
import { handled, ready } from '../../contracts/broker.ts'
import { listening } from '../../fakes/listening.ts'

t.test('connections to a broker that accepts them and never answers are closed, and none outlives the client', async (t) => {
  const connections: { hasEnded: boolean; isClosed: boolean }[] = []
  const frozen = createServer({ allowHalfOpen: true }, (socket) => {
    const connection = { hasEnded: false, isClosed: false }
    connections.push(connection)
    socket.resume().on('error', () => {}).on('close', () => (connection.isClosed = true))
    socket.on('end', () => {
      connection.hasEnded = true
      // A peer that has closed its socket resets the connection; one that has ended its half takes this.
      const writing = setInterval(() => socket.write('late'), 10)
      socket.on('close', () => clearInterval(writing))
    })
  })
  const broker = await recordingBroker(t, `127.0.0.1:${await listening(t, frozen)}`, { topicPrefix: prefix() })
  broker.consume('image', handled)
  broker.publish(ready('image', 'task'))
  await until(() => connections.some(({ isClosed }) => isClosed))
  await broker.close()
  await until(() => connections.every(({ isClosed }) => isClosed))
  t.ok(connections.every(({ hasEnded }) => hasEnded))
  t.comment(`${connections.length} connections`)
})

t.test('the library is not told of a connection that it gave up before it was there', async (t) => {
  const server = createServer((socket) => socket.resume())
  const port = await listening(t, server)
  const told: string[] = []
  const { socketFactory } = openSockets()
  const open = (name: string) => socketFactory({ host: '127.0.0.1', port, onConnect: () => told.push(name) } as unknown as ISocketFactoryArgs)
  const kept = open('kept')
  await once(open('given up').end(), 'close')
  await once(kept.end(), 'close')
  t.same(told, ['kept'])
})

/** Every message was sent or lost. */
async function settled(t: Test, producer: RecordingBroker): Promise<void> {
  await healthy(producer)
  await producer.close()
  t.comment(`${producer.count('published')} messages sent, ${producer.count('failed')} lost`)
  t.equal(producer.count('published') + producer.count('failed'), producer.published())
}

t.test('an outage', async (t) => {
  const server = await ownKafka(t)
  if (!server) return
  const { brokers } = server

  await t.test('a start without Kafka is not delayed, is reported, and recovers once Kafka is up', async (t) => {
    await server.kill()
    const topicPrefix = prefix()
    const startMs = performance.now()
    const [producer, consumer] = [await recordingBroker(t, brokers, { topicPrefix }), await recordingBroker(t, brokers, { topicPrefix })]
    consumer.consume('image', handled)
    for (let id = 0; id < 6000; id++) producer.publish(ready('image', `task-${id}`))
    t.comment(`opened, consuming, 6000 messages: ${Math.round(performance.now() - startMs)} ms`)
    await until(() => producer.warnings.length > 0 && consumer.count('restarted') > 0)
    for (const broker of [producer, consumer]) t.match(broker.health(), { ok: false, detail: /does not answer \(ECONNREFUSED\)/ })
    await server.start()
    await Promise.all([healthy(producer), healthy(consumer)])
    await publishUntilReceived(producer, consumer)
    t.ok(producer.count('failed') >= 1000, 'the queue is bounded')
    for (const outcome of ['failed', 'answered'] as const) t.ok(producer.sends(outcome).some((seconds) => seconds > 0), `sends that ended as ${outcome} were timed`)
    await settled(t, producer)
  })

  await t.test('a broker that is killed and restarted', async (t) => {
    const topicPrefix = prefix()
    const [producer, consumer] = [await recordingBroker(t, brokers, { topicPrefix }), await recordingBroker(t, brokers, { topicPrefix })]
    consumer.consume('image', handled)
    await publishUntilReceived(producer, consumer)
    await server.kill()
    // The connection that was open is reset first; the next one is refused.
    await until(() => {
      producer.publish(ready('image', 'task'))
      return /does not answer/.test(producer.health().detail) && !consumer.health().ok
    })
    await server.start()
    await publishUntilReceived(producer, consumer)
    await healthy(consumer)
    await settled(t, producer)
    t.comment(`${producer.warnings.length} and ${consumer.warnings.length} warnings`)
  })

  await t.test('a broker that is frozen and resumed', async (t) => {
    const topicPrefix = prefix()
    const [producer, consumer] = [await recordingBroker(t, brokers, { topicPrefix }), await recordingBroker(t, brokers, { topicPrefix })]
    consumer.consume('image', handled)
    await publishUntilReceived(producer, consumer)
    await server.freeze()
    const publishing = setInterval(() => producer.publish(ready('image', 'task')), 20)
    await until(() => !producer.health().ok && !consumer.health().ok)
    for (const broker of [producer, consumer]) t.match(broker.health().detail, /does not answer/)
    server.thaw()
    clearInterval(publishing)
    await publishUntilReceived(producer, consumer)
    await healthy(consumer)
    await settled(t, producer)
  })

  await t.test('a deleted topic is created again', async (t) => {
    const topicPrefix = prefix()
    const [producer, consumer] = [await recordingBroker(t, brokers, { topicPrefix }), await recordingBroker(t, brokers, { topicPrefix })]
    consumer.consume('image', handled)
    await publishUntilReceived(producer, consumer)
    await withAdmin(brokers, (admin) => admin.deleteTopics({ topics: [`${topicPrefix}image`] }))
    await until(() => {
      producer.publish(ready('image', 'task'))
      return producer.count('failed') > 0 || !producer.health().ok
    })
    await publishUntilReceived(producer, consumer)
    await settled(t, producer)
  })

  await t.test('a process that closes while Kafka is frozen or down exits', async (t) => {
    const { url } = await recordingBroker(t, brokers, { topicPrefix: prefix() })
    const [first, second] = [member(t, url), member(t, url)]
    await Promise.all([first.prints('healthy'), second.prints('healthy')])
    await server.freeze()
    const startMs = performance.now()
    t.same(await first.end(), { code: 0, stderr: '' })
    t.comment(`with a frozen broker: after ${Math.round(performance.now() - startMs)} ms`)
    await server.kill()
    await second.prints('unhealthy')
    const againMs = performance.now()
    t.same(await second.end(), { code: 0, stderr: '' })
    t.comment(`with none: after ${Math.round(performance.now() - againMs)} ms`)
  })
})
