import t from 'tap'
import type { Answer, Command, CommandName } from '../../../src/domain/subscription/commands.ts'
import { heal } from '../../../src/domain/subscription/clock-healing.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import { refusedOn } from '../../../src/domain/subscription/refusals.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { WEEK_MS } from '../../../src/domain/token-windows.ts'
import { recordViolations } from '../../../src/verify/subscription-invariants.ts'
import { admit, mediaPlan, plan, settle, T0 } from '../../contracts/store/acme.ts'

const DAY = 24 * 3_600_000

function subject(first: Command = plan()) {
  let record: Subscription | null = reduce(null, first as never, T0, 'acme/code').record
  function run<N extends CommandName>(command: Extract<Command, { op: N }>, now = T0): Answer<N> {
    const step = reduce(record, command, now, 'acme/code')
    record = step.record
    return step.answer
  }
  const refuse = (id: string, facts: Partial<Extract<Command, { op: 'countRefusals' }>> = {}, now = T0) =>
    run({ op: 'countRefusals', id, reasons: { rate_limited: 1 }, keys: { 'key-1': 1 }, ...facts }, now)
  return { run, refuse, record: () => record!, coding: () => record!.coding! }
}

t.test('counts add up by day, reason and key, and each is added once', async (t) => {
  const s = subject()
  t.same(s.refuse('a', { reasons: { rate_limited: 3, plan_inactive: 1 }, keys: { 'key-1': 3, 'key-2': 1 } }), { outcome: 'counted' })
  t.same(s.refuse('a', { reasons: { rate_limited: 3 } }), { outcome: 'already' })
  t.same(s.refuse('b', { reasons: { rate_limited: 2, session_limit_reached: 5 }, keys: { 'key-1': 7 } }), { outcome: 'counted' })
  s.refuse('c', {}, T0 + DAY)
  t.same(s.coding().refusals?.days, { '2026-01-05': { rate_limited: 5, plan_inactive: 1, session_limit_reached: 5 }, '2026-01-06': { rate_limited: 1 } })
  t.equal(refusedOn(s.coding().refusals?.days['2026-01-05']), 11)
  t.equal(refusedOn(undefined), 0)
  t.same(s.coding().keys, { 'key-1': { week: 0, used: 0, refused: 11 }, 'key-2': { week: 0, used: 0, refused: 1 } })
})

t.test('tokens and refusals of a key are counted beside each other, until the week ends', async (t) => {
  const s = subject()
  s.refuse('a', { keys: { 'key-1': 2 } })
  s.run(admit('r1', 500))
  s.run(settle('r1', 70))
  t.match(s.coding().keys['key-1'], { used: 70, refused: 2 })
  t.same([...recordViolations(s.record())], [])
  s.refuse('b', {}, T0 + WEEK_MS)
  t.match(s.coding().keys['key-1'], { used: 0, refused: 1 })
})

t.test('the record keeps the newest 35 days, 16 ids of counts, and 200 keys in a week', async (t) => {
  const s = subject()
  for (let n = 0; n < 50; n++) s.refuse(`c${n}`, {}, T0 + n * DAY)
  const { days, counts } = s.coding().refusals ?? { days: {}, counts: [] }
  t.same([Object.keys(days).length, Object.keys(days).at(-1)], [35, '2026-02-23'])
  t.same(counts, Array.from({ length: 16 }, (_, n) => `c${n + 34}`))
  s.refuse('many', { keys: Object.fromEntries(Array.from({ length: 300 }, (_, n) => [`other-${n}`, 1])) }, T0 + 49 * DAY)
  t.equal(Object.keys(s.coding().keys).length, 200)
  s.refuse('known', {}, T0 + 49 * DAY)
  t.match(s.coding().keys['key-1'], { refused: 2 }, 'a key that is counted stays counted')
})

t.test('a plan that is not active counts its refusals; without a coding account there is nothing to count in', async (t) => {
  const s = subject()
  s.run(plan({ state: 'Suspended', plan: { uid: 'plan-1', createdAt: T0, generation: 2 } }))
  t.same(s.refuse('a', { reasons: { plan_inactive: 1 } }), { outcome: 'counted' })
  t.same(subject(mediaPlan({}, { product: 'Media', terms: { ...mediaPlan().terms, coding: null } })).refuse('a'), { outcome: 'none' })
  t.same(reduce(null, { op: 'countRefusals', id: 'a', reasons: {}, keys: {} }, T0, 'acme/none'), { record: null, answer: { outcome: 'none' } })
})

t.test('days of a record that was written ahead of the clock count as today', async (t) => {
  const s = subject()
  s.refuse('a', { reasons: { rate_limited: 1, window_reserved: 1 } })
  s.refuse('b', { reasons: { rate_limited: 1, concurrency_limit: 4 } }, T0 + 3 * DAY)
  s.refuse('c', {}, T0 + 5 * DAY)
  t.same(heal(s.record(), T0).coding?.refusals?.days, { '2026-01-05': { rate_limited: 3, window_reserved: 1, concurrency_limit: 4 } })
})
