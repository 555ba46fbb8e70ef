/** Plan reconciler: gathers state, applies the commands of `reconcilePlan` to the subscription's record, and writes the status. */
import { refusal } from '../../src/domain/api-keys.ts'
import { grantOf, type Grant } from '../../src/domain/granted-allowances.ts'
import { limitsTogether, planVerdict, type PlanLimits, type ServicePrice } from '../../src/domain/plan-limits-by-namespace.ts'
import type { Message } from '../../src/domain/broker-messages.ts'
import { subscriptionId } from '../../src/domain/plans.ts'
import { grantedBy, reconcilePlan, type GatheredPlan } from '../../src/domain/reconcile/reconcile-plan.ts'
import { nextTime } from '../../src/domain/reconcile/status-conditions.ts'
import { readyTasks } from '../../src/domain/subscription/ready-tasks.ts'
import { readPages } from '../../src/tasks/paged-reads.ts'
import { publishReady } from '../../src/tasks/publish-ready.ts'
import type { PlanResource, Ref, Resources } from '../../src/backends/resources/resources.ts'
import type { Store } from '../../src/backends/store/store.ts'

export type PlanContext = {
  store: Store
  resources: Resources
  publish: (message: Message) => void
  assertLeading: () => void
  clock: () => number
  limits: PlanLimits | null
  servicePrice: ServicePrice
}

/** `isChanged`: the record was written, so the plan's keys must be reconciled. */
export type PlanPass = { requeueAt: number | null; isChanged: boolean }

/** `removePlan` of the former Plan, then `applyPlan`, with room to spare. */
const MAX_STEPS = 4
const GRANTS_READ = 100
/** Messages about the tasks of one kind of a plan that was changed. The end of each of these tasks publishes the next. */
const ANNOUNCED = 16

/**
 * One pass over a Plan; `plan` is null when it was deleted. Throws `Unavailable`. Where the plans of a namespace have limits together,
 * their passes must run in turn: each counts what the ones before granted.
 */
export async function runPlanPass(
  { store, resources, publish, assertLeading, clock, limits, servicePrice }: PlanContext,
  ref: Ref,
  plan: PlanResource | null,
): Promise<PlanPass> {
  const id = subscriptionId(ref.namespace, ref.name)
  const isLimited = plan !== null && limitsTogether(limits, ref.namespace)
  const [record, keys, status, grants] = await Promise.all([
    store.subscription(id),
    plan ? store.keysOf(id) : [],
    plan ? resources.status(ref) : null,
    isLimited ? grantsOf(store, ref.namespace, clock()) : [],
  ])
  const granted = plan && grantedBy(plan, record)
  const gatheredAt = clock()
  let facts: GatheredPlan = {
    plan,
    record,
    verdict: granted && planVerdict(limits, ref, granted, servicePrice, grants),
    answer: null,
    activeKeys: new Set(keys.filter((key) => refusal(key, gatheredAt) === null).map(({ keyId }) => keyId)).size,
    status: status && 'activeKeys' in status ? status : null,
  }
  for (let steps = 0; steps < MAX_STEPS; steps++) {
    const now = clock()
    const decision = reconcilePlan(facts, now)
    assertLeading()
    if (decision.next === null) {
      if (decision.status) await resources.setStatus(ref, decision.status)
      // A removed plan that counts no longer may leave room for a refused one.
      const freed = facts.verdict === null ? [] : grants.map(({ until }) => until)
      return { requeueAt: nextTime([decision.requeueAt, ...freed], now), isChanged: facts.record?.version !== record?.version }
    }
    const { next } = decision
    const answer = next.op === 'applyPlan' ? await store.change(id, next, now) : null
    if (next.op === 'removePlan') await store.change(id, next, now)
    facts = { ...facts, answer: answer?.outcome ?? null, record: await store.subscription(id) }
    // A change of the plan may let more tasks run.
    if (answer?.outcome === 'applied') publishReady({ publish }, id, readyTasks(facts.record, now, ANNOUNCED))
  }
  throw new Error(`the Plan ${id} did not become steady in ${MAX_STEPS} steps`)
}

/** The grants of all plans of a namespace. */
async function grantsOf(store: Store, namespace: string, now: number): Promise<Grant[]> {
  const grants: Grant[] = []
  for await (const record of readPages(GRANTS_READ, (after) => store.subscriptionsOf(namespace, after, GRANTS_READ))) {
    const grant = grantOf(record, now)
    if (grant) grants.push(grant)
  }
  return grants
}
