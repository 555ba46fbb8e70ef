/** Records that a process with a wrong clock has written, and what healing makes of them. */
import t from 'tap'
import { balanceOf } from '../../../src/domain/balance.ts'
import { heal, MAX_SKEW_MS } from '../../../src/domain/subscription/clock-healing.ts'
import type { Answer, Command, CommandName } from '../../../src/domain/subscription/commands.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { WEEK_MS } from '../../../src/domain/token-windows.ts'
import { recordViolations } from '../../../src/verify/subscription-invariants.ts'
import { moneyViolations } from '../../../src/verify/money-invariants.ts'
import { admit, mediaPlan, plan, settle, T0 } from '../../contracts/store/acme.ts'

const HOUR = 3_600_000
const DAY = 24 * HOUR
const AHEAD = [HOUR, 40 * DAY, 10 * 365 * DAY]

/** A record that its commands write at given times, some of them wrong. */
function subject(first: Command) {
  let record: Subscription | null = null
  function run<N extends CommandName>(command: Extract<Command, { op: N }>, now: number): Answer<N> {
    const step = reduce(record, command, now, 'acme/studio')
    record = step.record && { ...step.record, version: step.record.version + 1 }
    return step.answer
  }
  run(first as never, T0)
  const hold = (task: string, amount: number, now: number) => run({ op: 'hold', task, kind: 'image', amount, keyId: 'key-1', keyCap: null, keysVersion: 1 }, now)
  const spend = (task: string, amount: number, now: number) => {
    hold(task, amount, now)
    run({ op: 'close', task, actual: amount }, now)
  }
  return { run, hold, spend, record: () => record!, heal: (now: number) => (record = heal(record!, now)) }
}

t.test('a record whose time is within what clocks may differ is the same record', async (t) => {
  const s = subject(mediaPlan())
  s.hold('a', 1, T0 + MAX_SKEW_MS)
  const before = s.record()
  t.equal(s.heal(T0), before)
})

t.test('the rate limit of a record that was written ahead counts again at once, and its debt stays', async (t) => {
  for (const ahead of AHEAD) {
    const s = subject(mediaPlan({}, { terms: { ...mediaPlan().terms, requestsPerMinute: 60 } }))
    for (let i = 0; i < 10; i++) t.match(s.hold(`a${i}`, 1, T0 + ahead), { outcome: 'held' })
    t.match(s.hold('b', 1, T0), { outcome: 'rate' })
    s.heal(T0)
    t.match(s.hold('b', 1, T0), { outcome: 'rate', retryAfterMs: 1000 }, 'the burst is used')
    t.match(s.hold('b', 1, T0 + 1000), { outcome: 'held' })
  }
})

t.test('what a wrong clock queued or delayed is found by a worker', async (t) => {
  for (const ahead of AHEAD) {
    const s = subject(mediaPlan())
    s.hold('a', 1, T0 + ahead)
    s.hold('b', 1, T0 + ahead)
    t.match(s.run({ op: 'claim', claim: 'w1', kinds: ['image'] }, T0 + ahead), { outcome: 'claimed', task: 'a', epoch: 2 })
    s.run({ op: 'requeue', task: 'a', epoch: 2, readyAt: T0 + ahead + 2_000, served: true }, T0 + ahead)
    s.heal(T0)
    t.same(s.record().media?.due.every(({ readyAt }) => readyAt <= T0), true)
    t.match(s.run({ op: 'claim', claim: 'w2', kinds: ['image'] }, T0), { outcome: 'claimed', task: 'b' })
    t.match(s.run({ op: 'claim', claim: 'w3', kinds: ['image'] }, T0 + 1_999), { outcome: 'none' })
    t.match(s.run({ op: 'claim', claim: 'w3', kinds: ['image'] }, T0 + 2_000), { outcome: 'claimed', task: 'a' })
  }
})

t.test('a period that began ahead grants nothing: what it burned and holds belongs to the period that runs', async (t) => {
  for (const ahead of [40 * DAY, 10 * 365 * DAY]) {
    const s = subject(mediaPlan({ allowance: 1000 }))
    s.spend('a', 300, T0)
    const { period } = s.record().media!
    s.spend('b', 200, T0 + ahead)
    s.hold('c', 100, T0 + ahead)
    t.equal(balanceOf(s.record().media!).available, 700, 'a second allowance')
    s.heal(T0 + DAY)
    const media = s.record().media!
    t.match(media.period, { n: period.n, start: period.start, end: period.end, allowance: 1000, burned: 500 })
    t.same(media.past, [])
    t.same(balanceOf(media), { granted: 1000, available: 400, held: 100, burned: 500 })
    t.same(Object.keys(media.period.usage), ['2026-01-05', '2026-01-06'], 'no day is ahead')
    t.same([...recordViolations(s.record())], [])
    s.run({ op: 'close', task: 'c', actual: 100 }, T0 + DAY)
    t.equal(balanceOf(s.record().media!).burned, 600)
    t.match(s.hold('d', 401, T0 + DAY), { outcome: 'insufficient' })
    t.match(s.hold('d', 1000, T0 + 30 * DAY), { outcome: 'held' }, 'the next period comes at its time')
  }
})

t.test('a period ahead whose former one was archived is taken back to the period that runs', async (t) => {
  const s = subject(mediaPlan({ allowance: 1000 }))
  s.spend('a', 300, T0)
  s.spend('b', 200, T0 + 40 * DAY)
  s.run({ op: 'archived', n: 0 }, T0 + 40 * DAY)
  s.heal(T0 + DAY)
  t.match(s.record().media?.period, { n: 1, start: T0, end: T0 + 30 * DAY, burned: 200 })
  t.same([...recordViolations(s.record())], [])
})

t.test('the number of a period that was archived ahead is used by no later one', async (t) => {
  const s = subject(mediaPlan({ allowance: 1000 }))
  s.hold('open', 1, T0)
  s.spend('b', 20, T0 + 40 * DAY)
  s.spend('c', 30, T0 + 70 * DAY)
  t.match(s.run({ op: 'archived', n: 1 }, T0 + 70 * DAY), { outcome: 'archived' })
  s.heal(T0 + DAY)
  t.same([...recordViolations(s.record())], [])
  s.run({ op: 'close', task: 'open', actual: 1 }, T0 + DAY)
  s.spend('d', 500, T0 + 31 * DAY)
  s.spend('e', 6, T0 + 61 * DAY)
  const { past, period } = s.record().media!
  t.same([...past, period].map(({ n, start, burned }) => [n, (start - T0) / DAY, burned]), [
    [0, 0, 31],
    [3, 30, 500],
    [4, 60, 6],
  ])
  const archived = { ...past[1]!, n: 1, burned: 20 }
  const periods = [past[0]!, archived, past[1]!, period]
  const charges = [[2, 31], [40, 20], [32, 500], [62, 6]].map(([day = 0, amount = 0]) => ({ createdAt: T0 + day * DAY, amount, isFinal: true }))
  t.same([...moneyViolations('acme/studio', periods, periods, charges, 0)], [])
})

t.test('an account that began ahead begins now', async (t) => {
  const s = subject({ ...mediaPlan(), op: 'keysChanged' })
  s.run(mediaPlan(), T0 + 365 * DAY)
  s.heal(T0)
  t.equal(s.record().anchor, T0)
  t.match(s.record().media?.period, { start: T0, end: T0 + 30 * DAY })
  const start = T0 + 3 * DAY
  const later = subject({ ...mediaPlan(), op: 'keysChanged' })
  later.run(mediaPlan({}, { activeFrom: start }), T0 + HOUR)
  later.heal(T0)
  t.equal(later.record().anchor, start, 'a start time in the future is no fault')
  t.match(later.record().media?.period, { start })
})

t.test('token windows that a wrong clock began or emptied are taken back, with what they used', async (t) => {
  const s = subject(plan())
  s.run(admit('a', 100), T0)
  s.run(settle('a', 100), T0)
  s.run(admit('b', 50), T0 + HOUR)
  s.run(admit('c', 70), T0 + 2 * WEEK_MS)
  s.run(settle('c', 70), T0 + 2 * WEEK_MS)
  t.match(s.record().coding?.weekly, { n: 2, used: 70 })
  s.heal(T0 + 2 * HOUR)
  const coding = s.record().coding!
  t.same(coding.weekly, { n: 0, start: T0, used: 170 })
  t.same(coding.session, { start: T0 + 2 * HOUR, end: T0 + 7 * HOUR, used: 70 })
  t.same(Object.keys(coding.usage), ['2026-01-05'])
  t.same([...recordViolations(s.record())], [])
  t.match(s.run(settle('b', 50), T0 + 2 * HOUR), { outcome: 'settled', charged: 50 })
  t.equal(s.record().coding?.weekly.used, 220)
  t.same([...recordViolations(s.record())], [])
})

t.test('healing in two steps keeps what every key burned and used', async (t) => {
  const media = subject(mediaPlan({ allowance: 1000 }))
  media.spend('a', 300, T0)
  media.spend('b', 200, T0 + 35 * DAY)
  media.spend('c', 100, T0 + 100 * DAY)
  const coding = subject(plan())
  for (const [id, tokens, now] of [['a', 100, T0], ['b', 40, T0 + 3 * WEEK_MS + HOUR], ['c', 70, T0 + 7 * WEEK_MS]] as const) {
    coding.run(admit(id, tokens), now)
    coding.run(settle(id, tokens), now)
  }
  for (const [first, second] of [[T0 + 40 * DAY, T0 + DAY], [T0 + 3 * WEEK_MS + 2 * HOUR, T0 + 2 * HOUR]] as const) {
    const [m, c] = [structuredClone(media.record()), structuredClone(coding.record())].map((record) => heal(heal(record, first), second))
    t.same([...recordViolations(m!)], [])
    t.same([...recordViolations(c!)], [])
    t.equal(m?.media?.period.burned, 600)
    t.equal(c?.coding?.weekly.used, 210)
  }
})

t.test('an edit of the start time after a record was healed forgets neither holds nor usage', async (t) => {
  const edited = (start: number) => ({ activeFrom: start, plan: { uid: 'plan-1', createdAt: T0, generation: 2 } })
  const media = subject(mediaPlan({ allowance: 1000 }, { activeFrom: T0 + 3 * DAY }))
  media.run(mediaPlan({ allowance: 1000 }, { activeFrom: T0 + 3 * DAY }), T0 + 10 * DAY)
  media.spend('a', 300, T0 + 10 * DAY)
  media.hold('b', 100, T0 + 10 * DAY)
  media.heal(T0)
  media.run(mediaPlan({ allowance: 1000 }, edited(T0 + 5 * DAY)), T0)
  t.same(balanceOf(media.record().media!), { granted: 1000, available: 600, held: 100, burned: 300 })
  const coding = subject(plan({ activeFrom: T0 + 3 * DAY }))
  coding.run(admit('a', 50), T0 + 10 * DAY)
  coding.run(settle('a', 50), T0 + 10 * DAY)
  coding.run(admit('b', 50), T0 + 10 * DAY)
  coding.heal(T0)
  coding.run(plan(edited(T0 + 5 * DAY)), T0)
  t.match(coding.record().coding, { weekly: { used: 50 }, reservations: { b: { tokens: 50 } } })
  for (const s of [media, coding]) t.same([...recordViolations(s.record())], [])
})
