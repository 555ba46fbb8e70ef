/** What an outage of Kafka writes into the log. */
import t from 'tap'
import { openTrouble } from '../../../src/backends/broker/kafka/log-throttle.ts'

function logged() {
  const lines: string[] = []
  const say = (level: string) => (_facts: object, message: string) => void lines.push(`${level} ${message}`)
  return { lines, log: { debug: say('debug'), info: say('info'), warn: say('warn') } }
}

t.test('every change of what is wrong is said once, and that it is over', async (t) => {
  const { lines, log } = logged()
  const trouble = openTrouble(log, {})
  for (const sentence of ['away', 'away', 'away', 'closed', 'closed', 'away']) trouble.begins(sentence)
  t.equal(trouble.sentence(), 'away')
  trouble.ends()
  trouble.ends()
  t.equal(trouble.sentence(), null)
  trouble.begins('away')
  t.same(lines, ['warn Kafka: away', 'warn Kafka: closed', 'warn Kafka: away', 'info Kafka: in order again', 'warn Kafka: away'])
})

t.test('what passes by itself is said when it comes four times in a row', async (t) => {
  const { lines, log } = logged()
  const trouble = openTrouble(log, {})
  const error = Object.assign(new Error('There is no leader'), { type: 'LEADER_NOT_AVAILABLE' })
  for (let n = 0; n < 3; n++) trouble.begins('starting', error)
  trouble.ends()
  t.same(lines, [])
  for (let n = 0; n < 6; n++) trouble.begins('starting', error)
  t.same(lines, ['warn Kafka: starting'])
})
