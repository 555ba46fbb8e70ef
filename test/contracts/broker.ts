/** What every broker promises: it is a doorbell. */
import type { Broker } from '../../src/broker/broker.ts'
import type { Promises } from './promises.ts'

/** One broker, as each of the processes that share it has it. */
export type Doorbells = { ringer: Broker; hearer: Broker }

function firstRing(broker: Broker, kinds: string[]): { heard: Promise<string>; stop: () => void } {
  const { promise, resolve } = Promise.withResolvers<string>()
  return { heard: promise, stop: broker.listen(kinds, resolve) }
}

export const brokerPromises: Promises<Doorbells> = {
  'a ring of a kind is heard by who listens for that kind': async (t, { ringer, hearer }) => {
    const { heard } = firstRing(hearer, ['image', 'video'])
    ringer.ring('video', 'task-1')
    t.equal(await heard, 'video')
  },
  'a ring of another kind is not': async (t, { ringer, hearer }) => {
    const kinds: string[] = []
    hearer.listen(['image'], (kind) => kinds.push(kind))
    const { heard } = firstRing(hearer, ['music'])
    ringer.ring('video', 'task-1')
    ringer.ring('music', 'task-2')
    await heard
    t.same(kinds, [])
  },
  'who stopped listening hears nothing': async (t, { ringer, hearer }) => {
    const { heard: never, stop } = firstRing(hearer, ['image'])
    stop()
    const { heard } = firstRing(hearer, ['image'])
    ringer.ring('image', 'task-1')
    await heard
    t.equal(await Promise.race([never, 'nothing']), 'nothing')
  },
  'ringing never runs the listener before it returns, and never throws': async (t, { ringer, hearer }) => {
    let rung = false
    hearer.listen(['image'], () => (rung = true))
    ringer.ring('image', 'task-1')
    t.notOk(rung)
    ringer.ring('nobody-listens', 'task-1')
  },
  'closing twice, and ringing after that, is harmless': async (t, { ringer, hearer }) => {
    for (const broker of [ringer, ringer, hearer, hearer]) await broker.close()
    ringer.ring('image', 'task-1')
    t.pass()
  },
}
