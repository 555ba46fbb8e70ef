/** Log lines of a Kafka outage. */
import t from 'tap'
import { openConnectionState } from '../../../src/backends/broker/kafka/connection-warnings.ts'

function logged() {
  const lines: string[] = []
  const line = (level: string) => (facts: object, message: string) => void lines.push([level, message, ...('problem' in facts ? [facts.problem] : [])].join(': '))
  return { lines, log: { debug: line('debug'), info: line('info'), warn: line('warn') } }
}

const FAILED = 'warn: kafka client failed, retrying'

t.test('each change of the problem is logged once, and so is the recovery', async (t) => {
  const { lines, log } = logged()
  const state = openConnectionState(log, {})
  for (const problem of ['away', 'away', 'away', 'closed', 'closed', 'away']) state.failed(problem)
  t.equal(state.problem(), 'away')
  state.recovered()
  state.recovered()
  t.equal(state.problem(), null)
  state.failed('away')
  t.same(lines, [`${FAILED}: away`, `${FAILED}: closed`, `${FAILED}: away`, 'info: kafka client recovered', `${FAILED}: away`])
})

t.test('a transient error is logged when it occurs four times in a row', async (t) => {
  const { lines, log } = logged()
  const state = openConnectionState(log, {})
  const error = Object.assign(new Error('There is no leader'), { type: 'LEADER_NOT_AVAILABLE' })
  for (let n = 0; n < 3; n++) state.failed('starting', error)
  state.recovered()
  t.same(lines, [])
  for (let n = 0; n < 6; n++) state.failed('starting', error)
  t.same(lines, [`${FAILED}: starting`])
})
