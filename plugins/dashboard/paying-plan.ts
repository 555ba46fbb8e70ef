/** Which plan of a tenant pays for a task that somebody creates in the dashboard. */
import type { Store } from '../../src/backends/store/store.ts'
import { Failure } from '../../src/domain/errors.ts'
import { apiOf, planNameOf, subscriptionId } from '../../src/domain/plans.ts'
import { inactiveReason, planInactive, type Subscription } from '../../src/domain/subscription/subscription.ts'
import { invalid } from '../../src/domain/request-validation.ts'
import { readPages } from '../../src/tasks/paged-reads.ts'

const PAGE = 100

/** The tenant's subscriptions of the products Room and Media, in any state. Throws `plan_not_allowed` when there is none: nothing unlocks the AI Room. */
export async function mediaPlans(store: Store, tenant: string): Promise<[Subscription, ...Subscription[]]> {
  const found: Subscription[] = []
  for await (const plan of readPages(PAGE, (after) => store.subscriptionsOf(tenant, after, PAGE)))
    if (apiOf(plan.product) === 'media') found.push(plan)
  const [first, ...others] = found
  if (!first)
    throw new Failure('plan_not_allowed', { message: 'No plan of this tenant includes the AI Room. A Room or a Media plan does.' })
  return [first, ...others]
}

/**
 * The plan named `name`, or without a name the only active one. Throws `plan_inactive` when the plan, or every plan, is not active, and
 * `invalid_request` when several could pay and none is named.
 */
export function payingPlan(plans: readonly [Subscription, ...Subscription[]], name: string | undefined, now: number): Subscription {
  const [first] = plans
  if (name !== undefined) {
    const named = plans.find(({ id, tenant }) => id === subscriptionId(tenant, name))
    if (!named) throw invalid([{ path: '/plan', code: 'enum', message: `must be ${plans.map(({ id }) => planNameOf(id)).join(' or ')}` }])
    return active(named, now)
  }
  const usable = plans.filter((plan) => inactiveReason(plan, now) === null)
  if (usable.length > 1)
    throw invalid([
      {
        path: '/plan',
        code: 'required',
        message: `Several plans can pay: name ${usable.map(({ id }) => planNameOf(id)).join(' or ')} by ?plan=`,
      },
    ])
  return active(usable[0] ?? first, now)
}

function active(plan: Subscription, now: number): Subscription {
  const reason = inactiveReason(plan, now)
  if (reason) throw planInactive(reason)
  return plan
}
