/** Reconciles a Plan with its subscription's record: the next command and the status. Pure; the controller gathers, decides, applies, and repeats. */
import { isDeepStrictEqual } from 'node:util'
import { accountAt } from '../balance.ts'
import type { Granted } from '../plan-limits-by-namespace.ts'
import { termsOf } from '../plans.ts'
import type { PlanResource, PlanStatus } from '../../backends/resources/resources.ts'
import type { Answer, Command } from '../subscription/commands.ts'
import { inactiveReason, type Subscription } from '../subscription/subscription.ts'
import { createdAt, isOtherProduct, isPaused } from './not-ready-reasons.ts'
import { planUsage } from './plan-usage.ts'
import { conditionsOf, nextTime, paused, storeUnavailable, type Finding } from './status-conditions.ts'

export type GatheredPlan = {
  /** Null when the resource was deleted. */
  plan: PlanResource | null
  record: Subscription | null
  /** Why PLAN_LIMITS does not allow it, or null. */
  verdict: string | null
  /** Outcome of the last `applyPlan` of this pass; null before one. */
  answer: Answer<'applyPlan'>['outcome'] | null
  /** Number of API keys of the plan that can be used now. */
  activeKeys: number
  status: PlanStatus | null
}

export type PlanStep = Extract<Command, { op: 'applyPlan' | 'removePlan' }>

/**
 * `next` is the command to carry out first; the status is written when it is null. `requeueAt` (epoch milliseconds) is when time alone
 * changes the decision.
 */
export type PlanDecision = { next: PlanStep } | { next: null; status: PlanStatus | null; requeueAt: number | null }

/**
 * Decides from the gathered facts: a command to apply, after which it decides again, or the status to write, with the time at which time
 * alone changes it. `now` is epoch milliseconds.
 */
export function reconcilePlan(facts: GatheredPlan, now: number): PlanDecision {
  const { plan, record, answer } = facts
  const stored = record?.plan
  if (!plan) return stored ? { next: { op: 'removePlan', uid: stored.uid } } : { next: null, status: null, requeueAt: null }
  if (isPaused(plan)) return reconcilePaused(facts, plan, now)
  const isOther = isOtherProduct(plan, record)
  // The resource in the record is gone: another was created under its name, or a backup of the cluster has brought back an earlier one.
  if (stored && stored.uid !== plan.metadata.uid && (isOther || stored.createdAt > createdAt(plan)))
    return { next: { op: 'removePlan', uid: stored.uid } }
  if (isOther) return steady(facts, plan, plan.metadata.generation, now)
  const wanted = commandOf(plan, facts.verdict)
  if (answer === null && !isApplied(wanted, record)) return { next: wanted }
  return steady(facts, plan, plan.metadata.generation, now)
}

/** A paused Plan is served as it was applied, within PLAN_LIMITS. */
function reconcilePaused(facts: GatheredPlan, plan: PlanResource, now: number): PlanDecision {
  const { record, verdict, answer, status } = facts
  const { uid, generation } = plan.metadata
  const before = status?.conditions ?? []
  if (!record?.plan) {
    const unobserved = { observedGeneration: -1, activeKeys: 0, conditions: [] }
    return { next: null, status: paused(status ?? unobserved, before, generation, now), requeueAt: null }
  }
  const { plan: applied, product, terms, state, activeFrom, activeUntil } = record
  if (answer === null && record.verdict !== verdict)
    return { next: { op: 'applyPlan', plan: applied, product, terms, state, activeFrom, activeUntil, verdict } }
  const decision = steady(facts, plan, applied.uid === uid ? applied.generation : -1, now)
  return { ...decision, status: paused(decision.status, before, generation, now) }
}

/** What a Plan grants: what it declares, or while it is paused what is in force. */
export function grantedBy(plan: PlanResource, record: Subscription | null): Granted {
  return record?.plan && isPaused(plan) ? record : { product: plan.spec.product, terms: termsOf(plan) }
}

/** The status while the store is unavailable. */
export function planStoreUnavailable(plan: PlanResource, status: PlanStatus | null, now: number): PlanStatus {
  const { generation } = plan.metadata
  return storeUnavailable(status, { observedGeneration: generation, activeKeys: 0, conditions: [] }, ['Ready'], generation, now)
}

/** The command that applies a Plan; `verdict` as `planVerdict` returned it. */
export function commandOf(plan: PlanResource, verdict: string | null): Extract<PlanStep, { op: 'applyPlan' }> {
  const { metadata, spec } = plan
  const time = (text: string | undefined) => (text === undefined ? null : Date.parse(text))
  return {
    op: 'applyPlan',
    plan: { uid: metadata.uid, createdAt: createdAt(plan), generation: metadata.generation },
    product: spec.product,
    terms: termsOf(plan),
    state: spec.state,
    activeFrom: time(spec.startTime),
    activeUntil: time(spec.expirationTime),
    verdict,
  }
}

function isApplied(wanted: Extract<PlanStep, { op: 'applyPlan' }>, record: Subscription | null): boolean {
  if (!record) return false
  const { plan, product, terms, state, activeFrom, activeUntil, verdict } = record
  return isDeepStrictEqual({ op: 'applyPlan', plan, product, terms, state, activeFrom, activeUntil, verdict }, wanted)
}

function steady(
  facts: GatheredPlan,
  plan: PlanResource,
  generation: number,
  now: number,
): { next: null; status: PlanStatus; requeueAt: number | null } {
  const { record, status } = facts
  const reason = isOtherProduct(plan, record) ? 'ProductChanged' : facts.answer === 'older' ? 'PlanSuperseded' : inactiveReason(record, now)
  const ready: Finding =
    reason === null ? { type: 'Ready', status: 'True', reason: 'PlanActive' } : { type: 'Ready', status: 'False', reason }
  if (reason === 'PlanNotAllowed' && record?.verdict) ready.message = record.verdict
  const periodEnd = (reason === null && record && accountAt(record, now)?.period.end) || null
  const { usage, lookAt } =
    record && reason !== 'ProductChanged' ? planUsage(record, status?.usage ?? null, now) : { usage: null, lookAt: null }
  return {
    next: null,
    status: {
      observedGeneration: generation,
      activeKeys: reason === null ? facts.activeKeys : 0,
      ...(periodEnd !== null && { periodEndTime: new Date(periodEnd).toISOString() }),
      ...(usage !== null && { usage }),
      conditions: conditionsOf([ready], status?.conditions ?? [], generation, now),
    },
    requeueAt: nextTime([record?.activeFrom, record?.activeUntil, periodEnd, lookAt], now),
  }
}
