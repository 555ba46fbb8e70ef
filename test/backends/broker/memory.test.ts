import t from 'tap'
import { openBroker } from '../../../src/backends/broker/broker.ts'
import { brokerPromises } from '../../contracts/broker.ts'
import { runContract } from '../../contracts/run-contract.ts'

t.test('the in-process broker keeps the contract of a broker', (t) =>
  runContract(t, brokerPromises, async (t) => {
    const broker = await openBroker('memory:')
    t.teardown(() => broker.close())
    return { producer: broker, consumer: broker }
  }),
)

t.test('an address of an unknown kind is refused, without its password', (t) => t.rejects(openBroker('amqp://user:secret@localhost'), { message: /^(?!.*secret).*memory:.*kafka:/ }))
