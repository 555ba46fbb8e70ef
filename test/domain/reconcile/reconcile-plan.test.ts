/** Reconcile decisions for Plans, over plain data. */
import t from 'tap'
import { grantedBy, reconcilePlan, type GatheredPlan } from '../../../src/domain/reconcile/reconcile-plan.ts'
import type { PlanResource } from '../../../src/backends/resources/resources.ts'
import { applied, applyTo, edit, HOUR, iso, ISSUE, issued, plan, T0, world } from './reconcile-world.ts'

const gathered = (facts: Partial<GatheredPlan> = {}): GatheredPlan => ({ plan: plan('coder'), record: null, verdict: null, answer: null, activeKeys: 3, status: null, ...facts })

t.test('a plan is applied when its record differs, and not again', async (t) => {
  const coder = plan('coder', { startTime: iso(T0), expirationTime: iso(T0 + HOUR), displayName: 'Coder' })
  const first = reconcilePlan(gathered({ plan: coder }), T0)
  t.match(first, {
    next: { op: 'applyPlan', plan: { uid: 'plan-coder', createdAt: T0, generation: 1 }, product: 'Coding', state: 'Active', activeFrom: T0, activeUntil: T0 + HOUR, verdict: null, terms: { displayName: 'Coder' } },
  })
  const record = applied(coder)
  t.match(reconcilePlan(gathered({ plan: coder, record }), T0), { next: null, status: { observedGeneration: 1, activeKeys: 3, conditions: [{ type: 'Ready', status: 'True', reason: 'PlanActive' }] }, requeueAt: T0 + 60_000 })
  t.match(reconcilePlan(gathered({ plan: coder, record, verdict: 'Too much.' }), T0), { next: { op: 'applyPlan', verdict: 'Too much.' } }, 'PLAN_LIMITS changed')
  t.match(reconcilePlan(gathered({ plan: plan('coder', coder.spec, { generation: 2 }), record }), T0), { next: { plan: { generation: 2 } } })
})

t.test('a plan that is not active has the reason in its status, and is requeued for when it becomes active', async (t) => {
  const table: [Partial<PlanResource['spec']>, string | null, string, number | null][] = [
    [{ state: 'Suspended' }, null, 'PlanSuspended', null],
    [{ state: 'Retired' }, null, 'PlanRetired', null],
    [{ startTime: iso(T0 + HOUR) }, null, 'PlanNotActive', T0 + HOUR],
    [{ expirationTime: iso(T0) }, null, 'PlanExpired', null],
    [{}, 'Not allowed in this namespace: x.', 'PlanNotAllowed', null],
  ]
  for (const [spec, verdict, reason, requeueAt] of table) {
    const resource = plan('coder', spec)
    const decision = reconcilePlan(gathered({ plan: resource, record: applied(resource, null, verdict), verdict }), T0)
    t.match(decision, { next: null, status: { activeKeys: 0, conditions: [{ status: 'False', reason, ...(verdict && { message: verdict }) }] }, requeueAt })
  }
})

t.test('a media plan shows the end of its period, even if no pass ran when it rolled over', async (t) => {
  const studio = plan('studio', { product: 'Media' })
  const record = applied(studio)
  const DAYS = 24 * HOUR * 30
  t.match(reconcilePlan(gathered({ plan: studio, record }), T0), { status: { periodEndTime: iso(T0 + DAYS) } })
  t.match(reconcilePlan(gathered({ plan: studio, record }), T0 + DAYS - 1), { requeueAt: T0 + DAYS })
  t.match(reconcilePlan(gathered({ plan: studio, record }), T0 + DAYS), { status: { periodEndTime: iso(T0 + 2 * DAYS) } })
})

t.test('a deleted plan is removed from its record, once', async (t) => {
  const record = applied(plan('coder'))
  const decision = reconcilePlan(gathered({ plan: null, record }), T0)
  t.match(decision, { next: { op: 'removePlan', uid: 'plan-coder' } })
  const removed = applyTo(record, decision.next!).record
  t.same(reconcilePlan(gathered({ plan: null, record: removed }), T0), { next: null, status: null, requeueAt: null })
  t.same(reconcilePlan(gathered({ plan: null, record: null }), T0), { next: null, status: null, requeueAt: null })
})

t.test('a plan of another product under an old name is not active, and neither is the old one', async (t) => {
  const record = applied(plan('coder'))
  const media = plan('coder', { product: 'Media' }, { uid: 'plan-2', creationTimestamp: iso(T0 + HOUR) })
  const decision = reconcilePlan(gathered({ plan: media, record }), T0)
  t.match(decision, { next: { op: 'removePlan', uid: 'plan-coder' } })
  const removed = applyTo(record, decision.next!).record
  t.match(reconcilePlan(gathered({ plan: media, record: removed }), T0), { next: null, status: { conditions: [{ status: 'False', reason: 'ProductChanged' }] } })
})

t.test('a Plan that a backup of the cluster brought back takes the place of the one that was created since', async (t) => {
  const record = applied(plan('coder', {}, { uid: 'plan-2', creationTimestamp: iso(T0 + HOUR) }))
  for (const spec of [{ state: 'Suspended' }, { product: 'Media' }] as const) {
    const back = plan('coder', spec)
    const decision = reconcilePlan(gathered({ plan: back, record }), T0 + 2 * HOUR)
    t.match(decision, { next: { op: 'removePlan', uid: 'plan-2' } })
    const removed = applyTo(record, decision.next!).record
    const next = reconcilePlan(gathered({ plan: back, record: removed }), T0 + 2 * HOUR)
    if ('product' in spec) t.match(next, { next: null, status: { conditions: [{ reason: 'ProductChanged' }] } })
    else t.match(applyTo(removed, next.next!), { answer: { outcome: 'applied' }, record: { state: 'Suspended', plan: { uid: 'plan-coder' } } })
  }
})

t.test('a paused Plan is held to PLAN_LIMITS by what is in force, and its status follows the record', async (t) => {
  const coder = plan('coder', { expirationTime: iso(T0 + HOUR) })
  const record = applied(coder)
  const edited = plan('coder', { ...coder.spec, requestsPerMinute: 1, state: 'Suspended' }, { generation: 2, annotations: { 'tollgate.dev/paused': 'true' } })
  t.same(grantedBy(edited, record).terms, record.terms, 'what is in force, not what waits')
  const kept = reconcilePlan(gathered({ plan: edited, record }), T0)
  const Paused = { type: 'Paused', status: 'True' }
  t.match(kept, { next: null, status: { observedGeneration: 1, activeKeys: 3, conditions: [{ type: 'Ready', status: 'True', observedGeneration: 1 }, Paused] }, requeueAt: T0 + 60_000 })
  t.match(reconcilePlan(gathered({ plan: edited, record }), T0 + HOUR), { status: { activeKeys: 0, conditions: [{ status: 'False', reason: 'PlanExpired' }, Paused] } })

  const refused = reconcilePlan(gathered({ plan: edited, record, verdict: 'Too much.' }), T0)
  const { plan: stored, product, terms, state, activeFrom, activeUntil } = record
  t.same(refused.next, { op: 'applyPlan', plan: stored, product, terms, state, activeFrom, activeUntil, verdict: 'Too much.' }, 'nothing else is applied')
  const under = applyTo(record, refused.next!).record
  t.match(reconcilePlan(gathered({ plan: edited, record: under, verdict: 'Too much.' }), T0), { next: null, status: { activeKeys: 0, conditions: [{ reason: 'PlanNotAllowed', message: 'Too much.' }, Paused] } })
  t.match(reconcilePlan(gathered({ plan: edited }), T0), { next: null, status: { observedGeneration: -1, conditions: [Paused] }, requeueAt: null }, 'one that was never applied')
  const again = { ...edited, metadata: { ...edited.metadata, uid: 'another' } }
  t.match(reconcilePlan(gathered({ plan: again, record }), T0), { status: { observedGeneration: -1, conditions: [{ reason: 'PlanActive', observedGeneration: 0 }, Paused] } }, 'the API server takes no condition of a generation below zero')
})

t.test('a plan older than the applied one is PlanSuperseded and changes nothing', async (t) => {
  const record = applied(plan('coder', {}, { generation: 7 }))
  const older = plan('coder', {}, { generation: 6 })
  const decision = reconcilePlan(gathered({ plan: older, record }), T0)
  t.match(decision, { next: { op: 'applyPlan' } })
  const { answer } = applyTo(record, decision.next!)
  t.equal(answer.outcome, 'older')
  t.match(reconcilePlan(gathered({ plan: older, record, answer: 'older' }), T0), { next: null, status: { conditions: [{ status: 'False', reason: 'PlanSuperseded' }] } })
  t.same(world({ plan: older, record }).settle().done, ISSUE, 'its keys follow the applied one')
})

t.test('a condition keeps its lastTransitionTime while its status stays, whatever its reason', async (t) => {
  const self = issued()
  const times = () => Object.fromEntries(self.facts.status!.conditions.map(({ type, lastTransitionTime }) => [type, lastTransitionTime]))
  self.now = T0 + HOUR
  edit(self, { state: 'Suspended' })
  self.settle()
  t.same(times(), { Ready: iso(T0 + HOUR), PlanActive: iso(T0 + HOUR), KeyActive: iso(T0), SecretSynced: iso(T0 + HOUR) })
  self.now = T0 + 2 * HOUR
  edit(self, { state: 'Retired' })
  self.settle()
  t.same(times(), { Ready: iso(T0 + HOUR), PlanActive: iso(T0 + HOUR), KeyActive: iso(T0), SecretSynced: iso(T0 + HOUR) })
})
