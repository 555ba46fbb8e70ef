/** Limits on all plans of a namespace together: what counts, and which plan is refused. */
import t from 'tap'
import { grantOf } from '../../src/domain/granted-allowances.ts'
import { planVerdict, type PlanLimits } from '../../src/domain/plan-limits-by-namespace.ts'
import { grantedBy } from '../../src/domain/reconcile/reconcile-plan.ts'
import { subscriptionId } from '../../src/domain/plans.ts'
import { commandOf } from '../../src/domain/reconcile/reconcile-plan.ts'
import { reduce } from '../../src/domain/subscription/reducer.ts'
import type { Command } from '../../src/domain/subscription/commands.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import type { PlanResource, PlanSpec } from '../../src/backends/resources/resources.ts'
import { plan, T0 } from './reconcile/reconcile-world.ts'

const DAY = 24 * 3_600_000
const LIMITS: PlanLimits = { limits: [{ namespaces: ['*'], maxPlans: 3, media: { maxAllowanceOfNamespace: '100' } }] }

const media = (name: string, allowance: string, spec: Partial<PlanSpec> = {}, generation = 1) =>
  plan(name, { product: 'Media', ...spec, media: { ...plan(name, { product: 'Media' }).spec.media!, allowance } }, { generation })

/** The records of a namespace; each declared plan is judged and applied, as a pass of the controller does. */
function namespace(limits = LIMITS) {
  const records = new Map<string, Subscription>()
  let now = T0
  const run = (id: string, command: Command) => {
    const { record } = reduce(records.get(id) ?? null, command as never, now, id)
    if (record) records.set(id, record)
  }
  const idOf = ({ metadata }: PlanResource) => subscriptionId(metadata.namespace, metadata.name)
  return {
    declare(resource: PlanResource, under = limits) {
      const grants = [...records.values()].flatMap((record) => grantOf(record, now) ?? [])
      const verdict = planVerdict(under, resource.metadata, grantedBy(resource, null), () => null, grants)
      run(idOf(resource), commandOf(resource, verdict))
      return verdict
    },
    remove: (resource: PlanResource) => run(idOf(resource), { op: 'removePlan', uid: resource.metadata.uid }),
    hold(resource: PlanResource, task: string, amount: number) {
      const id = idOf(resource)
      run(id, { op: 'hold', task, kind: 'image', amount, keyId: 'k', keyCap: null, keysVersion: records.get(id)?.keysVersion ?? 0 })
    },
    close: (resource: PlanResource, task: string, actual: number) => run(idOf(resource), { op: 'close', task, actual }),
    spend(resource: PlanResource, micro: number) {
      this.hold(resource, `t${now}`, micro)
      this.close(resource, `t${now}`, micro)
    },
    pass: (ms: number) => void (now += ms),
  }
}

t.test('the allowances of a namespace are bounded together, and the message names what is left', async (t) => {
  const one = namespace()
  t.equal(one.declare(media('a', '60')), null)
  t.match(one.declare(media('b', '41')), /media\.allowance may be at most 40\.0000: the plans of a namespace may grant 100\.0000 together/)
  t.equal(one.declare(media('b', '40', {}, 2)), null)
  t.equal(one.declare(media('a', '60')), null, 'once more')
  t.match(one.declare(media('c', '0.000001')), /at most 0/)
})

t.test('a plan that is removed and made under another name refills nothing in its running period', async (t) => {
  const one = namespace()
  one.declare(media('a', '100'))
  one.spend(media('a', '100'), 100e6)
  one.remove(media('a', '100'))
  t.match(one.declare(media('b', '1')), /at most 0/)
  t.equal(one.declare(media('a', '100', {}, 2)), null, 'under its own name it returns, with what it used')
  one.remove(media('a', '100'))
  one.pass(29 * DAY)
  t.match(one.declare(media('b', '1', {}, 2)), /at most 0/)
  one.pass(DAY)
  t.equal(one.declare(media('b', '100', {}, 3)), null, 'the period has ended')
})

t.test('an allowance that is lowered after it was used leaves no room for another plan', async (t) => {
  const one = namespace()
  one.declare(media('a', '100'))
  one.spend(media('a', '100'), 90e6)
  t.equal(one.declare(media('a', '1', {}, 2)), null)
  t.match(one.declare(media('b', '11')), /at most 10\.0000/)
  t.match(one.declare(media('a', '1000', {}, 3)), /at most 100\.0000/, 'refused, it counts with what it used')
  t.match(one.declare(media('b', '11', {}, 2)), /at most 10\.0000/)
  t.equal(one.declare(media('b', '10', {}, 3)), null)
})

t.test('what a plan holds for its tasks counts like what it used, until they end without a charge', async (t) => {
  const one = namespace()
  one.declare(media('a', '100'))
  one.hold(media('a', '100'), 'task', 70e6)
  t.equal(one.declare(media('a', '1', {}, 2)), null)
  t.match(one.declare(media('b', '31')), /at most 30\.0000/)
  one.close(media('a', '1'), 'task', 0)
  t.equal(one.declare(media('b', '99', {}, 2)), null)
})

t.test('a plan that expires or is retired counts with its allowance until its period ends', async (t) => {
  const ends: Partial<PlanSpec>[] = [{ expirationTime: new Date(T0 + DAY).toISOString() }, { state: 'Retired' }]
  for (const end of ends) {
    const one = namespace()
    one.declare(media('a', '100'))
    one.declare(media('a', '100', end, 2))
    one.pass(29 * DAY)
    t.match(one.declare(media('b', '1')), /at most 0/)
    one.pass(DAY)
    t.equal(one.declare(media('b', '100', {}, 2)), null, 'the period has ended')
  }
})

t.test('a raise takes no allowance from another plan, and under lowered limits the newest plans are refused', async (t) => {
  const one = namespace()
  one.declare(media('a', '50'))
  one.pass(1)
  one.declare(media('b', '50'))
  t.match(one.declare(media('a', '51', {}, 2)), /at most 50\.0000/)
  one.declare(media('a', '50', {}, 3))
  const lowered = { limits: [{ namespaces: ['*'], media: { maxAllowanceOfNamespace: '60' } }] }
  t.equal(one.declare(media('a', '50', {}, 3), lowered), null)
  t.match(one.declare(media('b', '50'), lowered), /at most 10\.0000/)
})

t.test('the names of plans are bounded, removed ones of the running period or week included', async (t) => {
  const one = namespace({ limits: [{ namespaces: ['*'], maxPlans: 2 }] })
  t.equal(one.declare(media('a', '1')), null)
  t.equal(one.declare(plan('b')), null)
  t.match(one.declare(plan('c')), /a namespace may have at most 2 plans, removed ones included/)
  t.equal(one.declare(plan('b')), null)
  one.remove(plan('b'))
  t.match(one.declare(plan('c')), /at most 2 plans/)
  one.pass(7 * DAY)
  t.equal(one.declare(plan('c')), null)
  one.remove(media('a', '1'))
  t.match(one.declare(plan('d')), /at most 2 plans/)
  one.pass(23 * DAY)
  t.equal(one.declare(plan('d')), null)
})

t.test('a plan that was never granted counts for nothing', async (t) => {
  const one = namespace()
  t.match(one.declare(media('huge', '1000')), /at most 100/)
  for (const name of ['a', 'b', 'c']) t.equal(one.declare(media(name, '30')), null)
  t.match(one.declare(plan('d')), /at most 3 plans/)
})
