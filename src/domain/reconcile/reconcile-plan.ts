/** A declared Plan against its subscription's record: what to do next, and the status. Pure; the controller gathers, asks, applies, and asks again. */
import { isDeepStrictEqual } from 'node:util'
import { rollPeriod } from '../balance.ts'
import { apiOf, termsOf } from '../plans.ts'
import type { PlanResource, PlanStatus } from '../../backends/resources/resources.ts'
import type { Answer, Command } from '../subscription/commands.ts'
import { inactiveReason, type Subscription } from '../subscription/subscription.ts'
import { conditionsOf, nextTime, unreachable, type Finding, type Reason } from './status-conditions.ts'

export type GatheredPlan = {
  /** Null: the resource is gone. */
  plan: PlanResource | null
  record: Subscription | null
  /** Why PLAN_LIMITS refuses it, or null. */
  verdict: string | null
  /** What the last `applyPlan` of this pass was answered; null before one. */
  answer: Answer<'applyPlan'>['outcome'] | null
  /** API keys of the plan that may be used now. */
  activeKeys: number
  status: PlanStatus | null
}

export type PlanStep = Extract<Command, { op: 'applyPlan' | 'removePlan' }>

/** `next` comes first; the status is written once nothing is next. `requeueAt` is when time alone changes the answer. */
export type PlanDecision = { next: PlanStep } | { next: null; status: PlanStatus | null; requeueAt: number | null }

export function reconcilePlan(facts: GatheredPlan, now: number): PlanDecision {
  const { plan, record, answer } = facts
  if (!plan) return record?.plan ? { next: { op: 'removePlan', uid: record.plan.uid } } : { next: null, status: null, requeueAt: null }
  if (isOtherProduct(plan, record)) {
    // The resource that the record knows was deleted, and another one came under its name.
    const isStale = record?.plan && record.plan.uid !== plan.metadata.uid && record.plan.createdAt <= createdAt(plan)
    return isStale && record.plan ? { next: { op: 'removePlan', uid: record.plan.uid } } : steady(facts, plan, now)
  }
  const wanted = operationOf(plan, facts.verdict)
  if (answer === null && !isApplied(wanted, record)) return { next: wanted }
  return steady(facts, plan, now)
}

/** The status while the store cannot be reached. */
export function planUnreachable(plan: PlanResource, status: PlanStatus | null, now: number): PlanStatus {
  const { generation } = plan.metadata
  return unreachable(status, { observedGeneration: generation, activeKeys: 0, conditions: [] }, ['Ready'], generation, now)
}

/** Why a Plan resource serves nothing, or null when it serves. `waiting`: the record does not have this version of it yet. */
export function planReason(plan: PlanResource | null, record: Subscription | null, now: number): Reason | 'waiting' | null {
  if (!plan) return 'PlanNotFound'
  if (isOtherProduct(plan, record)) return 'ProductChanged'
  const { uid, generation } = plan.metadata
  const isKnown = record?.plan && (record.plan.uid === uid ? record.plan.generation >= generation : record.plan.createdAt > createdAt(plan))
  return isKnown ? inactiveReason(record, now) : 'waiting'
}

function isOtherProduct(plan: PlanResource, record: Subscription | null): boolean {
  return record !== null && apiOf(record.product) !== apiOf(plan.spec.product)
}

function createdAt(plan: PlanResource): number {
  return Date.parse(plan.metadata.creationTimestamp)
}

function operationOf(plan: PlanResource, verdict: string | null): Extract<PlanStep, { op: 'applyPlan' }> {
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

function steady(facts: GatheredPlan, plan: PlanResource, now: number): PlanDecision {
  const { record, status } = facts
  const { generation } = plan.metadata
  const reason = isOtherProduct(plan, record) ? 'ProductChanged' : facts.answer === 'older' ? 'PlanSuperseded' : inactiveReason(record, now)
  const ready: Finding = reason === null ? { type: 'Ready', status: 'True', reason: 'PlanActive' } : { type: 'Ready', status: 'False', reason }
  if (reason === 'PlanNotAllowed' && record?.verdict) ready.message = record.verdict
  const periodEnd = reason === null ? periodEndOf(record, now) : null
  return {
    next: null,
    status: {
      observedGeneration: generation,
      activeKeys: reason === null ? facts.activeKeys : 0,
      ...(periodEnd !== null && { periodEndTime: new Date(periodEnd).toISOString() }),
      conditions: conditionsOf([ready], status?.conditions ?? [], generation, now),
    },
    requeueAt: nextTime([record?.activeFrom, record?.activeUntil, periodEnd], now),
  }
}

function periodEndOf(record: Subscription | null, now: number): number | null {
  if (!record?.media || !record.terms.media || record.anchor === null) return null
  return rollPeriod(record.media, record.terms.media, record.anchor, now).period.end
}
