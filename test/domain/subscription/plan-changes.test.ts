/** What an edit, a removal and a return of a Plan make of the record of its subscription. */
import t from 'tap'
import { balanceOf } from '../../../src/domain/balance.ts'
import type { Answer, Command, CommandName } from '../../../src/domain/subscription/commands.ts'
import { entriesOf } from '../../../src/domain/subscription/holds.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { WEEK_MS } from '../../../src/domain/token-windows.ts'
import { recordViolations } from '../../../src/verify/subscription-invariants.ts'
import { admit, mediaPlan, plan, settle, T0 } from '../../contracts/store/acme.ts'

type Applying = Extract<Command, { op: 'applyPlan' }>

const HOUR = 3_600_000
const DAY = 24 * HOUR
/** The same Plan after it was deleted and created anew. */
const RETURNED = { uid: 'plan-2', createdAt: T0 + 2 * HOUR, generation: 1 }

function subject(id: string, first?: Applying) {
  let record: Subscription | null = null
  let now = T0
  function run<N extends CommandName>(command: Extract<Command, { op: N }>, at = now): Answer<N> {
    const step = reduce<N>(record, command, (now = at), id)
    record = step.record && { ...step.record, version: step.record.version + 1 }
    return step.answer
  }
  const hold = (task: string, amount = 100, at = now) =>
    run({ op: 'hold', task, kind: 'image', amount, keyId: 'key-1', keyCap: null, keysVersion: record?.keysVersion ?? 0 }, at)
  if (first) run(first)
  return { run, hold, record: () => record!, media: () => record!.media!, coding: () => record!.coding! }
}

/** A plan with something of everything: burned, held, running, waiting, a rate debt. */
function usedMedia() {
  const s = subject('acme/studio', mediaPlan({ allowance: 1000, maxConcurrentTasks: 1 }))
  s.run({ op: 'keysChanged' })
  for (const task of ['a', 'b', 'c']) t.match(s.hold(task), { outcome: 'held' })
  s.run({ op: 'close', task: 'a', actual: 60 })
  t.match(s.run({ op: 'claim', claim: 'w', kinds: ['image'] }), { outcome: 'claimed', task: 'b' })
  return s
}

function usedCoding() {
  const s = subject('acme/code', plan())
  s.run(admit('a', 500), T0 + HOUR)
  s.run(settle('a', 300))
  s.run(admit('b', 200))
  return s
}

/** Everything but the resource that was applied, and times. */
function kept({ plan: _plan, terms: _terms, version: _version, at: _at, ...rest }: Subscription) {
  return { ...rest, media: rest.media && { ...rest.media, holds: [...entriesOf(rest.media.holds)] } }
}

t.test('a Plan that returns after its removal refills nothing: period, week, session, holds, keys and rate go on', async (t) => {
  for (const [s, again] of [[usedMedia(), mediaPlan({ allowance: 1000, maxConcurrentTasks: 1 }, { plan: RETURNED })], [usedCoding(), plan({ plan: RETURNED })]] as const) {
    const before = structuredClone(kept(s.record()))
    t.match(s.run({ op: 'removePlan', uid: 'plan-1' }), { outcome: 'removed' })
    t.equal(s.record().plan, null)
    t.match(s.run(again, T0 + 3 * HOUR), { outcome: 'applied' })
    t.same(kept(s.record()), before)
    t.same(s.record().plan, RETURNED)
    t.same([...recordViolations(s.record())], [])
  }
})

t.test('a Plan that returns weeks later is in the period and the week that run then, counted from its first activation', async (t) => {
  const media = usedMedia()
  media.run({ op: 'removePlan', uid: 'plan-1' })
  media.run(mediaPlan({ allowance: 1000 }, { plan: RETURNED }), T0 + 40 * DAY)
  t.match(media.hold('d'), { outcome: 'held' })
  t.match(media.media().period, { n: 1, start: T0 + 30 * DAY, end: T0 + 60 * DAY, burned: 0 })
  t.match(media.media().past, [{ n: 0, burned: 60 }])
  const coding = usedCoding()
  coding.run({ op: 'removePlan', uid: 'plan-1' })
  coding.run(plan({ plan: RETURNED }), T0 + 10 * DAY)
  coding.run(admit('c', 10))
  t.same(coding.coding().weekly, { n: 1, start: T0 + WEEK_MS, used: 0 })
})

t.test('without its Plan a subscription admits and holds nothing, and what was accepted is finished and paid', async (t) => {
  const media = usedMedia()
  media.run({ op: 'removePlan', uid: 'plan-1' })
  t.match(media.hold('d'), { outcome: 'inactive', reason: 'PlanNotFound' })
  t.match(media.run({ op: 'close', task: 'b', actual: 100 }), { outcome: 'closed' })
  t.match(media.run({ op: 'claim', claim: 'x', kinds: ['image'] }), { outcome: 'claimed', task: 'c' })
  t.equal(media.media().period.burned, 160)
  const coding = usedCoding()
  coding.run({ op: 'removePlan', uid: 'plan-1' })
  t.match(coding.run(admit('c', 1)), { outcome: 'inactive', reason: 'PlanNotFound' })
  t.match(coding.run(settle('b', 50)), { outcome: 'settled', charged: 50 })
  t.match(coding.coding(), { session: { used: 350 }, weekly: { used: 350 } })
})

t.test('a removal acts on the Plan that it names, once', async (t) => {
  const s = subject('acme/studio', mediaPlan())
  t.match(s.run({ op: 'removePlan', uid: 'another' }), { outcome: 'already' })
  t.match(s.record().plan, { uid: 'plan-1' })
  t.match(s.run({ op: 'removePlan', uid: 'plan-1' }), { outcome: 'removed' })
  t.match(s.run({ op: 'removePlan', uid: 'plan-1' }), { outcome: 'already' })
  t.match(subject('acme/none').run({ op: 'removePlan', uid: 'plan-1' }), { outcome: 'already' })
})

t.test('an older generation, and an older resource of the name, change nothing; an equal one is applied again', async (t) => {
  const applied = (facts: Partial<Applying['plan']>) => mediaPlan({ allowance: 5 }, { plan: { uid: 'plan-1', createdAt: T0, generation: 3, ...facts } })
  const s = subject('acme/studio', mediaPlan({}, { plan: { uid: 'plan-1', createdAt: T0, generation: 3 } }))
  for (const older of [{ generation: 2 }, { uid: 'plan-0', createdAt: T0 - 1, generation: 9 }]) {
    const before = s.record()
    t.match(s.run(applied(older)), { outcome: 'older' })
    t.match(s.record(), { plan: before.plan, terms: before.terms })
  }
  t.match(s.run(applied({})), { outcome: 'applied' }, 'PLAN_LIMITS may have changed')
  t.equal(s.media().period.allowance, 5)
  t.match(s.run(applied({ uid: 'plan-2', createdAt: T0 + 1, generation: 1 })), { outcome: 'applied' })
})

t.test('a Plan of the other product changes nothing', async (t) => {
  const s = usedMedia()
  const before = s.record()
  t.match(s.run(plan({ plan: RETURNED })), { outcome: 'product_changed' })
  t.same(kept(s.record()), kept(before))
  t.same(s.record().plan, before.plan)
})

t.test('an edit of the allowance holds at once, for what is left of the period', async (t) => {
  const s = usedMedia()
  const edit = (allowance: number, generation: number) => s.run(mediaPlan({ allowance, maxConcurrentTasks: 1 }, { plan: { uid: 'plan-1', createdAt: T0, generation } }))
  edit(300, 2)
  t.same(balanceOf(s.media()), { granted: 300, available: 40, held: 200, burned: 60 })
  edit(100, 3)
  t.same(balanceOf(s.media()), { granted: 260, available: 0, held: 200, burned: 60 })
  t.equal(s.record().lowered, true)
  t.same([...recordViolations(s.record())], [])
  edit(2000, 4)
  t.equal(balanceOf(s.media()).available, 1740)
  t.equal(s.record().lowered, true, 'what was used before may still be above')
})

t.test('an edit of the concurrency decides at once what is due, and one of the period counts from the next', async (t) => {
  const s = usedMedia()
  t.same(s.media().due, [])
  s.run(mediaPlan({ maxConcurrentTasks: 2, period: { unit: 'days', count: 7 } }, { plan: { uid: 'plan-1', createdAt: T0, generation: 2 } }))
  t.match(s.media().due, [{ kind: 'image' }])
  t.match(s.media().period, { n: 0, start: T0, end: T0 + 30 * DAY })
  s.hold('d', 1, T0 + 31 * DAY)
  t.match(s.media().period, { n: 1, start: T0 + 30 * DAY, end: T0 + 37 * DAY })
})

t.test('an edit after an idle time leaves the periods that ran meanwhile as they were, the running one included', async (t) => {
  for (const [count, allowance] of [[366, 5000], [7, 10]] as const) {
    const s = usedMedia()
    s.run(mediaPlan({ allowance, period: { unit: 'days', count } }, { plan: { uid: 'plan-1', createdAt: T0, generation: 2 } }), T0 + 75 * DAY)
    t.match(s.media().past, [{ n: 0, end: T0 + 30 * DAY, allowance: 1000, burned: 60 }])
    t.match(s.media().period, { n: 2, start: T0 + 60 * DAY, end: T0 + 90 * DAY, allowance, burned: 0 })
    s.run({ op: 'close', task: 'b', actual: 1 }, T0 + 90 * DAY)
    t.match(s.media().period, { n: 3, start: T0 + 90 * DAY, end: T0 + (90 + count) * DAY })
    t.same([...recordViolations(s.record())], [])
  }
})

t.test('before the plan begins, an edit of the period counts for the first one', async (t) => {
  const edit = (generation: number, count: number, facts: Partial<Applying> = {}) =>
    mediaPlan({ period: { unit: 'days', count } }, { plan: { uid: 'plan-1', createdAt: T0, generation }, activeFrom: T0 + 7 * DAY, ...facts })
  const s = subject('acme/studio', edit(1, 7))
  s.run(edit(2, 30), T0 + DAY)
  t.match(s.media().period, { n: 0, start: T0 + 7 * DAY, end: T0 + 37 * DAY })
  s.run(edit(3, 1, { verdict: 'too short' }), T0 + 2 * DAY)
  s.run(edit(4, 28), T0 + 8 * DAY)
  t.match(s.media().period, { n: 0, end: T0 + 37 * DAY }, 'not one that PLAN_LIMITS refuse')
})

t.test('a period that PLAN_LIMITS refuse never runs: it would grant the allowance once more', async (t) => {
  const s = usedMedia()
  const edit = (generation: number, count: number, verdict: string | null) =>
    mediaPlan({ allowance: 1000, period: { unit: 'days', count } }, { plan: { uid: 'plan-1', createdAt: T0, generation }, verdict })
  s.run(edit(2, 1, 'too short'), T0 + 29 * DAY)
  t.match(s.run({ op: 'close', task: 'b', actual: 1 }, T0 + 30 * DAY), { outcome: 'closed' })
  s.run(edit(3, 30, null), T0 + 31 * DAY)
  t.match(s.media().period, { n: 1, start: T0 + 30 * DAY, end: T0 + 60 * DAY })
  s.run(edit(4, 1, 'too short'), T0 + 59 * DAY)
  s.run(edit(5, 1, 'still too short'), T0 + 60.5 * DAY)
  t.match(s.media().period, { n: 1, end: T0 + 60 * DAY }, 'nor after a second edit that is refused')
  s.run(edit(6, 30, null), T0 + 61 * DAY)
  t.match(s.media().period, { n: 2, start: T0 + 60 * DAY, end: T0 + 90 * DAY })
})

t.test('an edit of the window tokens holds at once, and one of the session length from the next session', async (t) => {
  const s = usedCoding()
  const { session } = s.coding()
  s.run(plan({ plan: { uid: 'plan-1', createdAt: T0, generation: 2 } }, { sessionTokens: 300, weeklyTokens: 1000, sessionMs: HOUR }))
  t.same(s.coding().session, session)
  t.match(s.run(admit('c', 1)), { outcome: 'session_full' })
  s.run(plan({ plan: { uid: 'plan-1', createdAt: T0, generation: 3 } }, { sessionTokens: 1000, weeklyTokens: 300, sessionMs: HOUR }))
  t.match(s.run(admit('c', 1)), { outcome: 'weekly_full' })
  s.run(plan({ plan: { uid: 'plan-1', createdAt: T0, generation: 4 } }, { sessionMs: HOUR }))
  t.match(s.run(admit('d', 1), T0 + 7 * HOUR), { outcome: 'admitted' })
  t.match(s.coding().session, { start: T0 + 7 * HOUR, end: T0 + 8 * HOUR })
})

t.test('periods and weeks count from the first activation: suspending, resuming and a verdict of limits move nothing', async (t) => {
  for (const [apply, startOf] of [
    [mediaPlan, (s: Subscription) => s.media?.period.start],
    [plan, (s: Subscription) => s.coding?.weekly.start],
  ] as const) {
    const edit = (generation: number, facts: Partial<Applying> = {}) =>
      apply === plan ? plan({ plan: { uid: 'plan-1', createdAt: T0, generation }, ...facts }) : mediaPlan({}, { plan: { uid: 'plan-1', createdAt: T0, generation }, ...facts })
    const s = subject('acme/plan', edit(1, { state: 'Suspended' }))
    s.run(edit(2, { verdict: 'too much' }), T0 + HOUR)
    t.equal(s.record().anchor, null)
    t.equal(startOf(s.record()), undefined)
    s.run(edit(3, { activeFrom: T0 + 5 * HOUR }), T0 + 2 * HOUR)
    t.equal(startOf(s.record()), T0 + 5 * HOUR)
    s.run(edit(4, { activeFrom: T0 + 4 * HOUR }), T0 + 3 * HOUR)
    t.equal(startOf(s.record()), T0 + 4 * HOUR, 'until then a new start time moves it')
    s.run(edit(5, { activeFrom: T0 + 9 * HOUR }), T0 + 6 * HOUR)
    s.run(edit(6, { state: 'Suspended' }), T0 + 7 * HOUR)
    s.run(edit(7), T0 + 8 * HOUR)
    t.equal(startOf(s.record()), T0 + 4 * HOUR)
    t.equal(s.record().anchor, T0 + 4 * HOUR)
  }
})

t.test('a change of keys makes what others know of them stale', async (t) => {
  t.match(subject('acme/none').run({ op: 'keysChanged' }), { outcome: 'none' })
  const s = subject('acme/code', plan())
  t.match(s.run({ op: 'keysChanged' }), { outcome: 'changed', keysVersion: 2 })
  t.same(s.run(admit('a', 1)), { outcome: 'stale', keysVersion: 2 })
  t.match(s.run(plan({ plan: RETURNED })), { outcome: 'applied' })
  t.equal(s.record().keysVersion, 2)
})
