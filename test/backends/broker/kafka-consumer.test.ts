/** A consumer at the moment at which its client ends, which no real server brings about at will. */
import { EventEmitter, once } from 'node:events'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Kafka } from 'kafkajs'
import t, { type Test } from 'tap'
import { openConsumer } from '../../../src/backends/broker/kafka/consumer.ts'
import { readAddress } from '../../../src/backends/broker/kafka/kafka-url.ts'

const events = { GROUP_JOIN: 'join', CRASH: 'crash', STOP: 'stop', FETCH: 'fetch' }

/** As kafkajs: once it has stopped, it throws where it is paused or resumed. */
function clientOf(created: (client: EventEmitter) => void, connect: () => Promise<void>) {
  const client = new EventEmitter()
  let isRunning = true
  client.once(events.STOP, () => (isRunning = false))
  const steer = () => {
    if (!isRunning) throw new Error('Consumer group was not initialized, consumer#run must be called first')
  }
  const nothing = async () => {}
  created(client)
  return { events, on: client.on.bind(client), connect, subscribe: nothing, run: async () => void client.emit('run'), disconnect: nothing, pause: steer, resume: steer, describeGroup: async () => ({ members: [] }) }
}

function open(t: Test, created: (client: EventEmitter) => void, connect = async () => {}, lines: string[] = []) {
  const admin = { connect: async () => {}, fetchTopicMetadata: async () => ({ topics: [{ partitions: [{}] }] }), describeConfigs: async () => ({ resources: [] }), disconnect: async () => {} }
  const kafka = { admin: () => admin, consumer: () => clientOf(created, connect) } as unknown as Kafka
  const line = (_facts: object, message: string) => void lines.push(message)
  const log = { debug() {}, info: line, warn: line }
  const consumer = openConsumer({ kafka, address: readAddress('kafka://127.0.0.1:1', () => ''), log, counted() {}, sent() {} }, 'image', async () => {})
  t.teardown(() => consumer.stop())
  return consumer
}

t.test('a consumer whose client has stopped and not yet crashed can be paused and resumed', async (t) => {
  const client = Promise.withResolvers<EventEmitter>()
  const consumer = open(t, client.resolve)
  const current = await client.promise
  await once(current, 'run')
  current.emit(events.GROUP_JOIN, { payload: { memberAssignment: { 'tollgate.image': [0] }, isLeader: false } })
  consumer.pause()
  current.emit(events.STOP)
  consumer.resume()
  consumer.pause()
  t.equal(consumer.isReceiving(), false)
})

t.test('a client that ended is released', async (t) => {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  const clients: WeakRef<EventEmitter>[] = []
  const third = Promise.withResolvers<void>()
  open(t, (client) => {
    if (clients.push(new WeakRef(client)) === 3) third.resolve()
  }, async () => {
    throw new Error('not authorized to access the group')
  })
  await third.promise
  await new Promise((resolve) => setImmediate(resolve))
  gc()
  t.equal(clients[0]?.deref(), undefined)
})

t.test('a consumer that ends after each join, before a fetch, counts as failed throughout, and is restarted ever more slowly', async (t) => {
  const lines: string[] = []
  const clients: EventEmitter[] = []
  const third = Promise.withResolvers<EventEmitter>()
  const startMs = performance.now()
  const error = Object.assign(new Error('ZSTD compression not implemented'), { name: 'KafkaJSNotImplemented' })
  const consumer = open(t, (client) => {
    const nth = clients.push(client)
    client.once('run', () => {
      client.emit(events.GROUP_JOIN, { payload: { memberAssignment: { 'tollgate.image': [0] }, isLeader: false } })
      if (nth === 3) third.resolve(client)
      else client.emit(events.CRASH, { payload: { error } })
    })
  }, undefined, lines)
  const current = await third.promise
  t.ok(performance.now() - startMs > 700, 'a quarter of a second, then half of one')
  t.match(consumer.state.problem(), /^the topic tollgate\.image has compressed messages \(ZSTD compression not implemented\), which Tollgate cannot read: /)
  t.same(lines, ['kafka client failed, retrying'])
  t.equal(consumer.isReceiving(), false)
  current.emit(events.FETCH)
  t.same(lines, ['kafka client failed, retrying', 'kafka client recovered'])
  t.equal(consumer.isReceiving(), true)
})
