/** The usage in a Plan's status: its numbers, how often it is written, and when the controller looks again. */
import t from 'tap'
import type { PlanUsage } from '../../../src/backends/resources/resources.ts'
import { planUsage } from '../../../src/domain/reconcile/plan-usage.ts'
import { reconcilePlan } from '../../../src/domain/reconcile/reconcile-plan.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { WEEK_MS } from '../../../src/domain/token-windows.ts'
import { applied, HOUR, iso, plan, T0 } from './reconcile-world.ts'

const MINUTE = 60_000
const coder = plan('coder')
const studio = plan('studio', { product: 'Media' })

function withTokens(session: number, weekly: number, sessionEnd = T0 + HOUR): Subscription {
  const record = applied(coder)
  const { coding } = record
  if (!coding) throw new Error('the plan has no windows')
  return { ...record, coding: { ...coding, session: { end: sessionEnd, used: session } as NonNullable<typeof coding.session>, weekly: { ...coding.weekly, used: weekly } } }
}

function withBurned(burned: number): Subscription {
  const record = applied(studio)
  if (!record.media) throw new Error('the plan has no account')
  return { ...record, media: { ...record.media, period: { ...record.media.period, burned } } }
}

t.test('an unused plan has no usage, and one that was never active is not checked', async (t) => {
  t.same(planUsage(withTokens(0, 0), null, T0), { usage: null, lookAt: T0 + MINUTE })
  t.same(planUsage(withBurned(0), null, T0), { usage: null, lookAt: T0 + MINUTE })
  t.same(planUsage(applied(plan('coder', { startTime: iso(T0 + HOUR) })), null, T0), { usage: null, lookAt: null })
})

t.test('tokens of both windows and money of the period are written with their time', async (t) => {
  t.same(planUsage(withTokens(30, 400), null, T0).usage, { time: iso(T0), sessionTokens: 30, weeklyTokens: 400 })
  t.same(planUsage(withBurned(1_040_000), null, T0).usage, { time: iso(T0), burned: '1.0400' })
})

t.test('usage is written once a minute at most, and only when it has changed', async (t) => {
  const first = planUsage(withTokens(30, 400), null, T0).usage
  t.same(planUsage(withTokens(31, 401), first, T0 + 1), { usage: first, lookAt: T0 + MINUTE })
  t.same(planUsage(withTokens(31, 401), first, T0 + MINUTE), { usage: { time: iso(T0 + MINUTE), sessionTokens: 31, weeklyTokens: 401 }, lookAt: T0 + 2 * MINUTE })
  t.same(planUsage(withTokens(30, 400), first, T0 + MINUTE), { usage: first, lookAt: T0 + 2 * MINUTE })
  const ahead: PlanUsage = { time: iso(T0 + HOUR), sessionTokens: 1, weeklyTokens: 1 }
  t.same(planUsage(withTokens(30, 400), ahead, T0).usage, first, 'a time of a clock that was ahead holds nothing up')
})

t.test('an idle plan is checked less and less often, at least every quarter of an hour', async (t) => {
  const record = withTokens(30, 400, T0 + 5 * HOUR)
  const { usage } = planUsage(record, null, T0)
  t.equal(planUsage(record, usage, T0 + 5 * MINUTE).lookAt, T0 + 10 * MINUTE)
  t.equal(planUsage(record, usage, T0 + HOUR).lookAt, T0 + HOUR + 15 * MINUTE)
})

t.test('windows and periods that have ended are empty again', async (t) => {
  const { usage } = planUsage(withTokens(30, 400), null, T0)
  t.same(planUsage(withTokens(30, 400), usage, T0 + HOUR).usage, { time: iso(T0 + HOUR), sessionTokens: 0, weeklyTokens: 400 })
  t.same(planUsage(withTokens(30, 400), usage, T0 + WEEK_MS).usage, { time: iso(T0 + WEEK_MS), sessionTokens: 0, weeklyTokens: 0 })
  t.same(planUsage(withBurned(1_000_000), { time: iso(T0), burned: '1.0000' }, T0 + 30 * 24 * HOUR).usage, { time: iso(T0 + 30 * 24 * HOUR), burned: '0.0000' })
})

t.test('a status with the usage is the same after a restart without any use', async (t) => {
  const facts = { plan: coder, record: withTokens(30, 400, T0 + 5 * HOUR), verdict: null, answer: null, activeKeys: 1 }
  const first = reconcilePlan({ ...facts, status: null }, T0)
  if (first.next !== null) throw new Error('the plan was applied before')
  t.match(first.status, { usage: { sessionTokens: 30, weeklyTokens: 400 } })
  const again = reconcilePlan({ ...facts, status: first.status }, T0 + HOUR)
  t.same(again, { ...first, requeueAt: T0 + HOUR + 15 * MINUTE })
})

t.test('a suspended plan keeps its usage, and a plan of another product under the name shows none', async (t) => {
  const record = withTokens(30, 400)
  const suspended = plan('coder', { state: 'Suspended' }, { generation: 2 })
  const status = { observedGeneration: 1, activeKeys: 1, conditions: [] }
  t.match(reconcilePlan({ plan: suspended, record: applied(suspended, record), verdict: null, answer: null, activeKeys: 1, status }, T0), { status: { usage: { weeklyTokens: 400 } } })
  const media = plan('coder', { product: 'Media' }, { uid: 'plan-2', creationTimestamp: iso(T0 + HOUR) })
  const other = reconcilePlan({ plan: media, record: { ...record, plan: null }, verdict: null, answer: null, activeKeys: 0, status: { ...status, usage: { time: iso(T0), weeklyTokens: 400, sessionTokens: 1 } } }, T0)
  t.equal(other.next === null && other.status?.usage, undefined)
})
