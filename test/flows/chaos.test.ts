import t from 'tap'
import { chaos } from './chaos.ts'

t.test('ten kills under load lose nothing that was answered with a 2xx', { timeout: 240_000 }, async (t) => {
  // The times of the kills follow from a fixed sequence; what they cut off depends on the machine, and that is the point.
  let state = 7
  const random = () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647
  const { faults, accepted, answered, ended, verified } = await chaos({ kills: 10, random })
  t.same(faults, [])
  t.ok(accepted > 0 && answered > 0, `${accepted} tasks (${JSON.stringify(ended)}) and ${answered} chats; ${verified}`)
})
