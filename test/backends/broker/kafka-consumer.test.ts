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

function open(t: Test, created: (client: EventEmitter) => void, connect = async () => {}) {
  const admin = { connect: async () => {}, fetchTopicMetadata: async () => ({ topics: [{ partitions: [{}] }] }), disconnect: async () => {} }
  const kafka = { admin: () => admin, consumer: () => clientOf(created, connect) } as unknown as Kafka
  const log = { debug() {}, info() {}, warn() {} }
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
