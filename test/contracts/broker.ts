/** Contract of every broker. */
import type { Broker } from '../../src/backends/broker/broker.ts'
import { partitionKey, type Message, type TaskReady } from '../../src/domain/broker-messages.ts'
import type { Promises } from './run-contract.ts'

/** One broker as two of the processes that share it open it. */
export type BrokerPair = { producer: Broker; consumer: Broker }

/** A message that names a task. */
export function ready(kind: string, task: string, facts: Partial<TaskReady> = {}): TaskReady {
  const subscription = 'acme/studio'
  return { type: 'task.ready', kind, object: 'generation', tenant: 'acme', subscription, task, attempt: 1, readyAt: 1_700_000_000_000, key: partitionKey(subscription, task, 100), ...facts }
}

/** A consumer that handles every message at once. */
export const handled = async (): Promise<void> => {}

function firstMessage(broker: Broker, kind: string) {
  const { promise, resolve } = Promise.withResolvers<Message>()
  return { received: promise, subscription: broker.consume(kind, async (message) => resolve(message)) }
}

export const brokerPromises: Promises<BrokerPair> = {
  'a message is received by a consumer of its kind, as it was published': async (t, { producer, consumer }) => {
    const { received } = firstMessage(consumer, 'video')
    const message = ready('video', 'task-1', { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01` })
    producer.publish(message)
    t.same(await received, message)
  },
  'a message about webhooks is received as it was published': async (t, { producer, consumer }) => {
    const { received } = firstMessage(consumer, 'webhook')
    const message: Message = { type: 'webhook.due', kind: 'webhook', tenant: 'acme', task: null, key: 'acme' }
    producer.publish(message)
    t.same(await received, message)
  },
  'a message is not received by a consumer of another kind': async (t, { producer, consumer }) => {
    const kinds: string[] = []
    consumer.consume('image', async ({ kind }) => void kinds.push(kind))
    const { received } = firstMessage(consumer, 'music')
    producer.publish(ready('video', 'task-1'))
    producer.publish(ready('music', 'task-2'))
    await received
    t.same(kinds, [])
  },
  'a stopped consumer receives nothing': async (t, { producer, consumer }) => {
    const { received: never, subscription } = firstMessage(consumer, 'image')
    subscription.stop()
    subscription.stop()
    const { received } = firstMessage(consumer, 'image')
    producer.publish(ready('image', 'task-1'))
    await received
    t.equal(await Promise.race([never, 'nothing']), 'nothing')
  },
  'a paused consumer receives again after it resumes, and both calls are idempotent': async (t, { producer, consumer }) => {
    let received = 0
    const { promise, resolve } = Promise.withResolvers<void>()
    const subscription = consumer.consume('image', async () => {
      received++
      resolve()
    })
    subscription.pause()
    subscription.pause()
    producer.publish(ready('image', 'task-1'))
    const { received: fence } = firstMessage(consumer, 'music')
    producer.publish(ready('music', 'task-2'))
    await fence
    t.equal(received, 0)
    subscription.resume()
    subscription.resume()
    producer.publish(ready('image', 'task-3'))
    await promise
  },
  'publishing returns before any consumer is called, and never throws': async (t, { producer, consumer }) => {
    let called = false
    consumer.consume('image', async () => void (called = true))
    producer.publish(ready('image', 'task-1'))
    t.notOk(called)
    producer.publish(ready('no-consumer', 'task-1'))
  },
  'a consumer whose handler fails receives further messages': async (t, { producer, consumer }) => {
    const tasks: string[] = []
    const { promise, resolve } = Promise.withResolvers<void>()
    consumer.consume('image', async (message) => {
      if (message.type === 'task.ready') tasks.push(message.task)
      if (new Set(tasks).size > 1) resolve()
      throw new Error('not handled')
    })
    // A broker may lose all but the last message of a send that fails.
    const publishing = setInterval(() => producer.publish(ready('image', 'task-1')), 1000)
    t.teardown(() => clearInterval(publishing))
    for (const task of ['task-1', 'task-2']) producer.publish(ready('image', task))
    await promise
    t.same([...new Set(tasks)].toSorted(), ['task-1', 'task-2'])
  },
  'a consumer is receiving from its first message until its broker is closed': async (t, { producer, consumer }) => {
    const { received, subscription } = firstMessage(consumer, 'image')
    producer.publish(ready('image', 'task-1'))
    await received
    t.ok(subscription.isReceiving())
    await consumer.close()
    t.notOk(subscription.isReceiving())
  },
  'closing is idempotent, and publishing or consuming afterwards is harmless': async (t, { producer, consumer }) => {
    for (const broker of [producer, producer, consumer, consumer]) await broker.close()
    producer.publish(ready('image', 'task-1'))
    consumer.consume('image', async () => void t.fail('received after the end')).stop()
    t.pass()
  },
}
