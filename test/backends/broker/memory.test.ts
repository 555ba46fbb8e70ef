import t from 'tap'
import { openBroker } from '../../../src/backends/broker/broker.ts'
import { brokerPromises } from '../../contracts/broker.ts'
import { runContract } from '../../contracts/run-contract.ts'

t.test('the doorbell within one process keeps the promises of a broker', (t) =>
  runContract(t, brokerPromises, async (t) => {
    const broker = await openBroker('memory:')
    t.teardown(() => broker.close())
    return { ringer: broker, hearer: broker }
  }),
)

t.test('an address that names no broker is refused, without its password', (t) => t.rejects(openBroker('amqp://user:secret@localhost'), { message: /^(?!.*secret).*memory:.*kafka:/ }))
