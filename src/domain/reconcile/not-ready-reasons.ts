/** Why a Plan or an ApiKey is not ready or not active: the reasons of its conditions, when each applies, and its message. Pure. */
import type { KeyVersion } from '../api-keys.ts'
import { apiOf } from '../plans.ts'
import { inactiveReason, type Subscription } from '../subscription/subscription.ts'
import type { ApiKeyResource, PlanResource, Resource } from '../../backends/resources/resources.ts'

/** `reason` of a condition, of a fulfilled one as well. */
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
  | 'Paused'

/** `message` of a condition, by its reason. */
export const MESSAGES: Record<Reason, string> = {
  Issued: 'The key is issued and can be used.',
  PlanActive: 'The plan is active.',
  NoSecretRequested: 'spec.secretName is not set, so no Secret is written.',
  RotationInProgress: 'The key was rotated; the previous key works until its overlap ends.',
  ProductChanged: 'The product differs from the one used before; a plan or a key cannot change its product.',
  PlanNotFound: 'No plan of this name exists in the namespace.',
  PlanNotAllowed: 'The plan exceeds the plan limits of this namespace.',
  PlanNotActive: "The plan's startTime is in the future.",
  PlanSuspended: 'The plan is suspended.',
  PlanRetired: 'The plan is retired.',
  PlanExpired: 'The plan has expired.',
  PlanSuperseded: 'A newer version of this plan is already applied.',
  PlanKeyLimitReached: "The plan's keyPolicy.maxKeys is used up by keys that were created before this one.",
  LimitNotApplicable: "The key's limit does not fit the plan's product: weeklyTokens is for Coding, amountPerPeriod for Room and Media.",
  KeySuspended: 'The key is suspended.',
  KeyRevoked: 'The key is revoked.',
  KeyExpired: 'The key has expired.',
  SecretConflict: 'A Secret of this name exists and has a different owner; it was not changed.',
  SealingKeyMissing: 'The key cannot be decrypted: the sealing key that encrypted it is not configured.',
  ClusterRefused: 'The API server rejected a request for this key; the controller retries.',
  StoreUnavailable: 'The store is unavailable; the controller retries.',
  Paused: 'The annotation tollgate.dev/paused holds changes back; what ends or restricts a key takes effect, and so does deletion.',
}

/** What keeps a condition from being fulfilled. Without a `message` the condition has that of its reason. */
export type Problem = { reason: Reason; message?: string }

/** The note of an Event may have 1,024. */
const REJECTION_BYTES_MAX = 900

/** The problem of a request that the API server rejected with this `message`, which is cut after 900 bytes. */
export function clusterRefused(message: string): Problem {
  const bounded = Buffer.from(message).subarray(0, REJECTION_BYTES_MAX).toString()
  return { reason: 'ClusterRefused', message: `${MESSAGES.ClusterRefused} ${bounded}` }
}

/**
 * Why a Plan is not active, or null when it is active. `waiting`: the subscription's record does not have this generation of the Plan yet. The record of a
 * paused Plan is not going to have it, and counts as it is.
 */
export function planNotActiveReason(plan: PlanResource | null, record: Subscription | null, now: number): Reason | 'waiting' | null {
  if (!plan) return 'PlanNotFound'
  if (isOtherProduct(plan, record)) return 'ProductChanged'
  const { uid, generation } = plan.metadata
  const isApplied =
    record?.plan && (record.plan.uid === uid ? record.plan.generation >= generation : record.plan.createdAt > createdAt(plan))
  if (isApplied) return inactiveReason(record, now)
  if (!isPaused(plan)) return 'waiting'
  return record?.plan ? inactiveReason(record, now) : 'Paused'
}

const PAUSED = 'tollgate.dev/paused'

/** Whether the annotation of a Plan or an ApiKey pauses its reconciliation. What ends or restricts a key is not paused. */
export function isPaused({ metadata }: Resource): boolean {
  return metadata.annotations?.[PAUSED] === 'true'
}

/** Whether the Plan belongs to another API than its subscription's record. */
export function isOtherProduct(plan: PlanResource, record: Subscription | null): boolean {
  return record !== null && apiOf(record.product) !== apiOf(plan.spec.product)
}

/** Creation time of a Plan in epoch milliseconds. */
export function createdAt(plan: PlanResource): number {
  return Date.parse(plan.metadata.creationTimestamp)
}

type KeyFacts = { key: ApiKeyResource; plan: PlanResource | null; versions: KeyVersion[]; isAdmitted: boolean }

/**
 * Why a key is not active, whatever the state of its plan; null when it is active. `versions` are newest first. A key that the store has as revoked or deleted
 * stays so, even under an older manifest.
 */
export function keyNotActiveReason({ key, plan, versions, isAdmitted }: KeyFacts, now: number): Reason | null {
  const { spec } = key
  const newest = versions[0]
  const isEnded =
    newest !== undefined && newest.revision >= spec.rotationRevision && (newest.state === 'revoked' || newest.state === 'deleted')
  if (spec.state === 'Revoked' || isEnded) return 'KeyRevoked'
  if (isExpired(key, now)) return 'KeyExpired'
  // A version that was never in use has no fixed product yet.
  const used = versions.find(({ state }) => state !== 'pending')
  const api = plan ? apiOf(plan.spec.product) : used && apiOf(used.product)
  if (plan && used && apiOf(used.product) !== api) return 'ProductChanged'
  if (spec.state === 'Suspended') return 'KeySuspended'
  if (spec.limit && api && (spec.limit.weeklyTokens === undefined) === (api === 'coding')) return 'LimitNotApplicable'
  if (!isAdmitted) return 'PlanKeyLimitReached'
  return null
}

/** Why the key in the store, of these `versions`, is suspended or has expired, whatever its manifest says; null when it is neither. */
export function storedReason(versions: KeyVersion[], now: number): Reason | null {
  const used = versions.find(({ state }) => state !== 'pending')
  if (used?.state === 'suspended') return 'KeySuspended'
  return used && now >= (used.expiresAt ?? Infinity) ? 'KeyExpired' : null
}

/** `spec.expirationTime` in epoch milliseconds; null for a key that does not expire. */
export function expiryOf({ spec }: ApiKeyResource): number | null {
  return spec.expirationTime === undefined ? null : Date.parse(spec.expirationTime)
}

/** Whether the expiration time of a key has passed at `now`, epoch milliseconds. */
export function isExpired(key: ApiKeyResource, now: number): boolean {
  return now >= (expiryOf(key) ?? Infinity)
}
