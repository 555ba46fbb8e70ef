/** Contract of every broker. */
import type { Broker } from '../../src/backends/broker/broker.ts'
import type { Promises } from './run-contract.ts'

/** One broker as two of the processes that share it open it. */
export type BrokerPair = { producer: Broker; consumer: Broker }

function firstMessage(broker: Broker, kinds: string[]) {
  const { promise, resolve } = Promise.withResolvers<string>()
  return { received: promise, subscription: broker.consume(kinds, resolve) }
}

export const brokerPromises: Promises<BrokerPair> = {
  'a message is received by a consumer of its kind': async (t, { producer, consumer }) => {
    const { received } = firstMessage(consumer, ['image', 'video'])
    producer.publish('video', 'task-1')
    t.equal(await received, 'video')
  },
  'a message is not received by a consumer of another kind': async (t, { producer, consumer }) => {
    const kinds: string[] = []
    consumer.consume(['image'], (kind) => kinds.push(kind))
    const { received } = firstMessage(consumer, ['music'])
    producer.publish('video', 'task-1')
    producer.publish('music', 'task-2')
    await received
    t.same(kinds, [])
  },
  'a stopped consumer receives nothing': async (t, { producer, consumer }) => {
    const { received: never, subscription } = firstMessage(consumer, ['image'])
    subscription.stop()
    subscription.stop()
    const { received } = firstMessage(consumer, ['image'])
    producer.publish('image', 'task-1')
    await received
    t.equal(await Promise.race([never, 'nothing']), 'nothing')
  },
  'a paused consumer receives again after it resumes, and both calls are idempotent': async (t, { producer, consumer }) => {
    let received = 0
    const { promise, resolve } = Promise.withResolvers<void>()
    const subscription = consumer.consume(['image'], () => {
      received++
      resolve()
    })
    subscription.pause()
    subscription.pause()
    producer.publish('image', 'task-1')
    const { received: fence } = firstMessage(consumer, ['music'])
    producer.publish('music', 'task-2')
    await fence
    t.equal(received, 0)
    subscription.resume()
    subscription.resume()
    producer.publish('image', 'task-3')
    await promise
  },
  'publishing returns before any consumer is called, and never throws': async (t, { producer, consumer }) => {
    let called = false
    consumer.consume(['image'], () => (called = true))
    producer.publish('image', 'task-1')
    t.notOk(called)
    producer.publish('no-consumer', 'task-1')
  },
  'closing is idempotent, and publishing or consuming afterwards is harmless': async (t, { producer, consumer }) => {
    for (const broker of [producer, producer, consumer, consumer]) await broker.close()
    producer.publish('image', 'task-1')
    consumer.consume(['image'], () => t.fail('received after the end')).stop()
    t.pass()
  },
}
