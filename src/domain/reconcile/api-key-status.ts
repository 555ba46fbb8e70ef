/** The status of a reconciled ApiKey: its four conditions and the requeue time. Pure. */
import { refusal } from '../api-keys.ts'
import type { ApiKeyStatus } from '../../backends/resources/resources.ts'
import { expiryOf, isPaused, type Problem, type Reason } from './not-ready-reasons.ts'
import { conditionsOf, nextTime, type Finding } from './status-conditions.ts'
import type { GatheredKey } from './reconcile-api-key.ts'

/** The watch has no foreign Secrets, so their deletion is found by retrying. */
const OBSTACLE_RETRY_MS = 30_000

/** Why the key itself is not active, why its plan is not, and whether its Secret holds the key. */
type Verdicts = { own: Reason | null; plan: Reason | null; isSynced: boolean }

/** `requeueAt` (epoch milliseconds) is when time alone changes the status; null when it never does. */
export function statusOf(
  facts: GatheredKey,
  verdicts: Verdicts,
  observedGeneration: number,
  now: number,
): { status: ApiKeyStatus; requeueAt: number | null } {
  const { key, record, versions, obstacle } = facts
  const inUse = versions.find(({ state }) => state === 'active' || state === 'suspended' || state === 'revoked')
  const { secretName } = key.spec
  const status: ApiKeyStatus = {
    observedGeneration,
    ...(inUse && {
      keyID: inUse.id,
      keyPrefix: inUse.prefix,
      rotationRevision: inUse.revision,
      issuedTime: new Date(inUse.issuedAt).toISOString(),
    }),
    ...(verdicts.isSynced && secretName !== undefined && { secretRef: { name: secretName } }),
    conditions: conditionsOf(findingsOf(facts, verdicts, now), facts.status?.conditions ?? [], observedGeneration, now),
  }
  const times = [
    expiryOf(key),
    record?.activeFrom,
    record?.activeUntil,
    ...versions.flatMap(({ expiresAt, overlapUntil }) => [expiresAt, overlapUntil]),
  ]
  return { status, requeueAt: nextTime([...times, obstacle && now + OBSTACLE_RETRY_MS], now) }
}

function findingsOf(facts: GatheredKey, { own, plan, isSynced }: Verdicts, now: number): Finding[] {
  const { versions, obstacle, record, key } = facts
  const isActive = own === null && versions.some((version) => refusal(version, now) === null)
  const isRotating = versions.some((version) => version.overlapUntil !== null && refusal(version, now) === null)
  const works: Reason = isRotating ? 'RotationInProgress' : 'Issued'
  const ofPlan: Problem | null = plan && { reason: plan, ...(plan === 'PlanNotAllowed' && record?.verdict && { message: record.verdict }) }
  const problem: Problem = (own && { reason: own }) ?? ofPlan ?? obstacle ?? { reason: isPaused(key) ? 'Paused' : 'RotationInProgress' }
  const planActive = condition('PlanActive', ofPlan, 'PlanActive')
  const keyActive = condition('KeyActive', isActive ? null : problem, works)
  const secretSynced =
    key.spec.secretName === undefined
      ? condition('SecretSynced', null, 'NoSecretRequested')
      : condition('SecretSynced', isSynced ? null : (obstacle ?? problem), 'Issued', 'The Secret holds the key.')
  const failed = [own === null ? null : keyActive, planActive, keyActive, secretSynced].find((finding) => finding?.status === 'False')
  const ready: Finding = failed ? { ...failed, type: 'Ready' } : condition('Ready', null, works)
  return [ready, planActive, keyActive, secretSynced]
}

function condition(type: string, problem: Problem | null, reason: Reason, message?: string): Finding {
  return problem === null
    ? { type, status: 'True', reason, ...(message !== undefined && { message }) }
    : { type, status: 'False', ...problem }
}
