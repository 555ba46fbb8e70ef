/** Plan reconciler: gathers state, applies the commands of `reconcilePlan` to the subscription's record, and writes the status. */
import { refusal, type KeyVersion } from '../../src/domain/api-keys.ts'
import { planVerdict, type PlanLimits, type ServicePrice } from '../../src/domain/plan-limits.ts'
import { subscriptionId } from '../../src/domain/plans.ts'
import { reconcilePlan, type GatheredPlan } from '../../src/domain/reconcile/reconcile-plan.ts'
import type { PlanResource, Ref, Resources } from '../../src/backends/resources/resources.ts'
import type { Store } from '../../src/backends/store/store.ts'

export type PlanContext = { store: Store; resources: Resources; assertLeading: () => void; clock: () => number; limits: PlanLimits | null; servicePrice: ServicePrice }

/** `isChanged`: the record was written, so the plan's keys must be reconciled. */
export type PlanPass = { requeueAt: number | null; isChanged: boolean }

/** `removePlan` of the former Plan, then `applyPlan`, with room to spare. */
const MAX_STEPS = 4

/** One pass over a Plan; `plan` is null when it was deleted. Throws `Unavailable`. */
export async function runPlanPass({ store, resources, assertLeading, clock, limits, servicePrice }: PlanContext, ref: Ref, plan: PlanResource | null): Promise<PlanPass> {
  const id = subscriptionId(ref.namespace, ref.name)
  const [record, keys, status] = await Promise.all([store.subscription(id), plan ? store.keysOf(id) : [], plan ? resources.status(ref) : null])
  let facts: GatheredPlan = {
    plan,
    record,
    verdict: plan && planVerdict(limits, plan, servicePrice),
    answer: null,
    activeKeys: countActive(keys, clock()),
    status: status && 'activeKeys' in status ? status : null,
  }
  for (let steps = 0; steps < MAX_STEPS; steps++) {
    const now = clock()
    const decision = reconcilePlan(facts, now)
    assertLeading()
    if (decision.next === null) {
      if (decision.status) await resources.setStatus(ref, decision.status)
      return { requeueAt: decision.requeueAt, isChanged: facts.record?.version !== record?.version }
    }
    const { next } = decision
    const answer = next.op === 'applyPlan' ? await store.change(id, next, now) : null
    if (next.op === 'removePlan') await store.change(id, next, now)
    facts = { ...facts, answer: answer?.outcome ?? null, record: await store.subscription(id) }
  }
  throw new Error(`the Plan ${id} did not become steady in ${MAX_STEPS} steps`)
}

function countActive(keys: KeyVersion[], now: number): number {
  return new Set(keys.filter((key) => refusal(key, now) === null).map(({ keyId }) => keyId)).size
}
