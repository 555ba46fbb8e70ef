/** What every broker promises: it is a doorbell. */
import type { Broker } from '../../src/backends/broker/broker.ts'
import type { Promises } from './run-contract.ts'

/** One broker, as each of the processes that share it has it. */
export type Doorbells = { ringer: Broker; hearer: Broker }

function firstRing(broker: Broker, kinds: string[]) {
  const { promise, resolve } = Promise.withResolvers<string>()
  return { heard: promise, listening: broker.consume(kinds, resolve) }
}

export const brokerPromises: Promises<Doorbells> = {
  'a ring of a kind is heard by who listens for that kind': async (t, { ringer, hearer }) => {
    const { heard } = firstRing(hearer, ['image', 'video'])
    ringer.publish('video', 'task-1')
    t.equal(await heard, 'video')
  },
  'a ring of another kind is not': async (t, { ringer, hearer }) => {
    const kinds: string[] = []
    hearer.consume(['image'], (kind) => kinds.push(kind))
    const { heard } = firstRing(hearer, ['music'])
    ringer.publish('video', 'task-1')
    ringer.publish('music', 'task-2')
    await heard
    t.same(kinds, [])
  },
  'who stopped listening hears nothing': async (t, { ringer, hearer }) => {
    const { heard: never, listening } = firstRing(hearer, ['image'])
    listening.stop()
    listening.stop()
    const { heard } = firstRing(hearer, ['image'])
    ringer.publish('image', 'task-1')
    await heard
    t.equal(await Promise.race([never, 'nothing']), 'nothing')
  },
  'who paused hears again after it resumed, however often it says either': async (t, { ringer, hearer }) => {
    let heard = 0
    const { promise, resolve } = Promise.withResolvers<void>()
    const listening = hearer.consume(['image'], () => {
      heard++
      resolve()
    })
    listening.pause()
    listening.pause()
    ringer.publish('image', 'task-1')
    const { heard: fence } = firstRing(hearer, ['music'])
    ringer.publish('music', 'task-2')
    await fence
    t.equal(heard, 0)
    listening.resume()
    listening.resume()
    ringer.publish('image', 'task-3')
    await promise
  },
  'ringing never runs the listener before it returns, and never throws': async (t, { ringer, hearer }) => {
    let rung = false
    hearer.consume(['image'], () => (rung = true))
    ringer.publish('image', 'task-1')
    t.notOk(rung)
    ringer.publish('nobody-listens', 'task-1')
  },
  'closing twice, and ringing or listening after that, is harmless': async (t, { ringer, hearer }) => {
    for (const broker of [ringer, ringer, hearer, hearer]) await broker.close()
    ringer.publish('image', 'task-1')
    hearer.consume(['image'], () => t.fail('heard after the end')).stop()
    t.pass()
  },
}
