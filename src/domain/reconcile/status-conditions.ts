/** Conditions of a status, as `metav1.Condition`: the reasons, their sentences, and when a condition changed. Pure. */
import type { Condition } from '../../backends/resources/resources.ts'

export type Reason =
  | 'Issued'
  | 'PlanActive'
  | 'NoSecretRequested'
  | 'RotationInProgress'
  | 'ProductChanged'
  | 'PlanNotFound'
  | 'PlanNotAllowed'
  | 'PlanNotActive'
  | 'PlanSuspended'
  | 'PlanRetired'
  | 'PlanExpired'
  | 'PlanSuperseded'
  | 'PlanKeyLimitReached'
  | 'LimitNotApplicable'
  | 'KeySuspended'
  | 'KeyRevoked'
  | 'KeyExpired'
  | 'SecretConflict'
  | 'SealingKeyMissing'
  | 'ClusterRefused'
  | 'StoreUnavailable'

const SENTENCES: Record<Reason, string> = {
  Issued: 'The key is issued and may be used.',
  PlanActive: 'The plan serves requests.',
  NoSecretRequested: 'The key names no secretName, so no Secret is written.',
  RotationInProgress: 'The key was rotated; the secret before still works until its overlap ends.',
  ProductChanged: 'The plan is for another product than before, which it cannot become.',
  PlanNotFound: 'There is no plan of that name in this namespace.',
  PlanNotAllowed: 'The plan grants more than is allowed here.',
  PlanNotActive: "The plan's start time has not come.",
  PlanSuspended: 'The plan is suspended.',
  PlanRetired: 'The plan is retired.',
  PlanExpired: 'The plan has expired.',
  PlanSuperseded: 'A later version of this plan is in force.',
  PlanKeyLimitReached: "The plan's keyPolicy.maxKeys is reached by keys that were created before this one.",
  LimitNotApplicable: "The key's limit is not of the plan's product: weeklyTokens is for Coding, amountPerPeriod for Room and Media.",
  KeySuspended: 'The key is suspended.',
  KeyRevoked: 'The key is revoked.',
  KeyExpired: 'The key has expired.',
  SecretConflict: 'A Secret of that name exists and belongs to somebody else; it was left alone.',
  SealingKeyMissing: 'The key cannot be opened: the sealing key that it was sealed under is not among those of this installation.',
  ClusterRefused: 'The API server refuses what the key needs; it is asked again.',
  StoreUnavailable: 'The store cannot be reached; this is tried again.',
}

/** Why something is not as it should be. Without a message the reason's own sentence says it. */
export type Problem = { reason: Reason; message?: string }
export type Finding = Problem & { type: string; status: Condition['status'] }

/** The note of an Event may have 1,024. */
const REFUSAL_BYTES_MAX = 900

/** What a server said when it refused a request. */
export function clusterRefused(sentence: string): Problem {
  const bounded = Buffer.from(sentence).subarray(0, REFUSAL_BYTES_MAX).toString()
  return { reason: 'ClusterRefused', message: `${SENTENCES.ClusterRefused} ${bounded}` }
}

/** The conditions that say this, in place of those before. `lastTransitionTime` moves only where the status changes. */
export function conditionsOf(findings: Finding[], before: Condition[], observedGeneration: number, now: number): Condition[] {
  return findings.map(({ type, status, reason, message }) => {
    const old = before.find((condition) => condition.type === type)
    const lastTransitionTime = old?.status === status ? old.lastTransitionTime : new Date(now).toISOString()
    return { type, status, reason, message: message ?? SENTENCES[reason], observedGeneration, lastTransitionTime }
  })
}

type Status = { observedGeneration: number; conditions: Condition[] }

/**
 * The status while the store is away: until a first pass is complete everything is Unknown, later only `Ready` says so, since nobody knows whether the rest changed.
 * `empty` is the status of a resource that has none yet.
 */
export function unreachable<S extends Status>(before: S | null, empty: S, types: string[], generation: number, now: number): S {
  const isFirst = !before || before.conditions.some(({ type, status }) => type === 'Ready' && status === 'Unknown')
  const findings = types.map((type): Finding => ({ type, status: isFirst ? 'Unknown' : 'False', reason: 'StoreUnavailable' }))
  if (isFirst) return { ...empty, conditions: conditionsOf(findings, before?.conditions ?? [], generation, now) }
  const ready = conditionsOf(findings.filter(({ type }) => type === 'Ready'), before.conditions, generation, now)
  return { ...before, conditions: before.conditions.map((condition) => ready.find(({ type }) => type === condition.type) ?? condition) }
}

/** The earliest of these times that is still to come, or null. */
export function nextTime(times: (number | null | undefined)[], now: number): number | null {
  const coming = times.filter((time) => typeof time === 'number').filter((time) => time > now)
  return coming.length === 0 ? null : Math.min(...coming)
}
