/** Status conditions of Plans and ApiKeys (`metav1.Condition`): their transition times, and the status while the store is unavailable. Pure. */
import type { Condition } from '../../backends/resources/resources.ts'
import { MESSAGES, type Problem } from './not-ready-reasons.ts'

/** A condition to be written; without a `message` it has that of its reason. */
export type Finding = Problem & { type: string; status: Condition['status'] }

/**
 * The conditions for these findings. `lastTransitionTime` moves only where the status differs from the one in `before`. `observed` is the generation, -1 before
 * the first.
 */
export function conditionsOf(findings: Finding[], before: Condition[], observed: number, now: number): Condition[] {
  const observedGeneration = Math.max(observed, 0)
  return findings.map(({ type, status, reason, message }) => {
    const old = before.find((condition) => condition.type === type)
    const lastTransitionTime = old?.status === status ? old.lastTransitionTime : new Date(now).toISOString()
    return { type, status, reason, message: message ?? MESSAGES[reason], observedGeneration, lastTransitionTime }
  })
}

type Status = { observedGeneration: number; conditions: Condition[] }

/**
 * The status while the store is unavailable. All conditions are Unknown until a first pass is complete; afterwards only `Ready` turns False, since the last
 * known state of the others may still be true. `empty` is the status of a resource that has none yet.
 */
export function storeUnavailable<S extends Status>(before: S | null, empty: S, types: string[], generation: number, now: number): S {
  const isFirst = !before || before.conditions.some(({ type, status }) => type === 'Ready' && status === 'Unknown')
  const findings = types.map((type): Finding => ({ type, status: isFirst ? 'Unknown' : 'False', reason: 'StoreUnavailable' }))
  if (isFirst) return { ...empty, conditions: conditionsOf(findings, before?.conditions ?? [], generation, now) }
  const ready = conditionsOf(
    findings.filter(({ type }) => type === 'Ready'),
    before.conditions,
    generation,
    now,
  )
  return { ...before, conditions: before.conditions.map((condition) => ready.find(({ type }) => type === condition.type) ?? condition) }
}

/** The status of a paused resource: `status` with the condition `Paused`, which a pass removes once the resource is not paused. */
export function paused<S extends Status>(status: S, before: Condition[], generation: number, now: number): S {
  const added = conditionsOf([{ type: 'Paused', status: 'True', reason: 'Paused' }], before, generation, now)
  return { ...status, conditions: [...status.conditions.filter(({ type }) => type !== 'Paused'), ...added] }
}

/** The earliest of these times that is after `now`, or null. */
export function nextTime(times: (number | null | undefined)[], now: number): number | null {
  const future = times.filter((time) => typeof time === 'number').filter((time) => time > now)
  return future.length === 0 ? null : Math.min(...future)
}
