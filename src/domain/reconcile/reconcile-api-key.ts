/** A declared ApiKey against its versions in the store and its Secret: what to do next, and the status. Pure; the controller applies, and asks again. */
import type { KeyVersion } from '../api-keys.ts'
import { apiOf } from '../plans.ts'
import type { ApiKeyResource, ApiKeyStatus, PlanResource } from '../../backends/resources/resources.ts'
import type { Subscription } from '../subscription/subscription.ts'
import { unreachable, type Problem, type Reason } from './status-conditions.ts'
import { statusOf } from './api-key-status.ts'
import { changeOf, expiryOf, wantedRevision, type KeyChange } from './api-key-rotation.ts'
import { planReason } from './reconcile-plan.ts'

/** What a Secret of ours holds. */
export type FoundSecret = {
  /** Entry `key-id`: the version that it is for. */
  keyId: string
  /** SHA-256 of the key in it. */
  hash: string
  /** Its mac proves that we wrote it. */
  isProven: boolean
  /** Something else of it was changed by somebody. */
  isSpoiled?: true
}

export type GatheredKey = {
  key: ApiKeyResource
  /** The Plan that it names. */
  plan: PlanResource | null
  record: Subscription | null
  /** Whether the plan's maxKeys suffices for it; see `isAdmitted`. */
  isAdmitted: boolean
  /** All that the store has of it, newest revision first. */
  versions: KeyVersion[]
  /** The Secret of its `secretName`, if it is ours. */
  secret: FoundSecret | null
  /** What kept a step of this pass from being done: `SecretConflict`, `SealingKeyMissing` or `ClusterRefused`. */
  obstacle: Problem | null
  status: ApiKeyStatus | null
}

export type KeyStep =
  | { step: 'tell'; version: KeyVersion }
  /** The store is an older backup than the Secret: the key in it becomes that version. */
  | { step: 'takeBack'; revision: number }
  | { step: 'set'; id: string; change: KeyChange; tell: string[] }
  | { step: 'mint'; revision: number }
  | { step: 'putSecret'; name: string; version: KeyVersion }
  | { step: 'removeSecrets' }

/** `waiting`: the plan is about to be applied, and asks again. Else `next` comes first; the status is written once nothing is next. */
export type KeyDecision =
  | { outcome: 'next'; next: KeyStep }
  | { outcome: 'waiting' }
  | { outcome: 'steady'; status: ApiKeyStatus; requeueAt: number | null }

/**
 * Pending in the store → Secret → active → status, and backwards: unusable in the store → Secret gone. Each step leaves a state that this function
 * continues from, so that a crash anywhere leaves nothing behind.
 */
export function reconcileKey(facts: GatheredKey, now: number): KeyDecision {
  const { key, versions, secret, obstacle } = facts
  const next = (step: KeyStep): KeyDecision => ({ outcome: 'next', next: step })
  const untold = versions.find(({ tell }) => tell.length > 0)
  if (untold) return next({ step: 'tell', version: untold })
  const isRefused = obstacle?.reason === 'ClusterRefused'
  const lost = isRefused ? null : lostRevision(facts)
  if (lost !== null) return next({ step: 'takeBack', revision: lost })

  const own = ownReason(facts, now)
  for (const version of versions) {
    const changed = changeOf(version, facts, own, now)
    if (changed) return next({ step: 'set', id: version.id, ...changed })
  }
  const plan = planReason(facts.plan, facts.record, now)
  if (plan === 'waiting') return { outcome: 'waiting' }

  const isUsable = own === null && plan === null
  const revision = wantedRevision(facts)
  const current = versions.find((version) => version.revision === revision)
  const { secretName } = key.spec
  const holds = isUsable && current !== undefined && secret?.keyId === current.id && secret.hash === current.hash && secret.isProven
  // A Secret that may not be put right holds the key all the same.
  const isSynced = holds && (!secret.isSpoiled || isRefused)
  const steady = (): KeyDecision => ({ outcome: 'steady', ...statusOf(facts, { own, plan, isSynced }, now) })
  // What the store has to know it was told; nothing more is asked for, nor made usable, in this pass.
  if (isRefused) return steady()

  if (isUsable && !current) return next({ step: 'mint', revision })
  if (isUsable && current && secretName !== undefined && !isSynced && obstacle === null) return next({ step: 'putSecret', name: secretName, version: current })
  if (isUsable && current?.state === 'pending' && (isSynced || secretName === undefined)) {
    return next({ step: 'set', id: current.id, change: { state: 'active' }, tell: [] })
  }
  if (!isUsable && secret !== null) return next({ step: 'removeSecrets' })
  return steady()
}

/** Why the key itself may not be used, whatever its plan; or null. What the store knows to be over stays over, also under an older manifest. */
export function ownReason({ key, plan, versions, isAdmitted: isWithin }: GatheredKey, now: number): Reason | null {
  const { spec } = key
  const newest = versions[0]
  const isOver = newest !== undefined && newest.revision >= spec.rotationRevision && (newest.state === 'revoked' || newest.state === 'deleted')
  if (spec.state === 'Revoked' || isOver) return 'KeyRevoked'
  if (isExpired(key, now)) return 'KeyExpired'
  // A version that was never in use is bound to no product yet.
  const used = versions.find(({ state }) => state !== 'pending')
  const api = plan ? apiOf(plan.spec.product) : used && apiOf(used.product)
  if (plan && used && apiOf(used.product) !== api) return 'ProductChanged'
  if (spec.state === 'Suspended') return 'KeySuspended'
  if (spec.limit && api && (spec.limit.weeklyTokens === undefined) === (api === 'coding')) return 'LimitNotApplicable'
  if (!isWithin) return 'PlanKeyLimitReached'
  return null
}

/** Whether a plan's maxKeys suffices for the key: the keys created first are admitted. Revoked and expired ones take no place. */
export function isAdmitted(key: ApiKeyResource, siblings: Iterable<ApiKeyResource>, plan: PlanResource | null, now: number): boolean {
  let left = plan?.spec.keyPolicy.maxKeys ?? Infinity
  for (const sibling of siblings) if (takesPlace(sibling, now) && compare(sibling, key) < 0 && --left === 0) return false
  return true
}

/** Names of all keys that a plan admits. */
export function admittedKeys(siblings: Iterable<ApiKeyResource>, plan: PlanResource | null, now: number): Set<string> {
  const placed = [...siblings].filter((sibling) => takesPlace(sibling, now)).sort(compare)
  return new Set(placed.slice(0, plan?.spec.keyPolicy.maxKeys).map(({ metadata }) => metadata.name))
}

function takesPlace(key: ApiKeyResource, now: number): boolean {
  return key.spec.state !== 'Revoked' && !isExpired(key, now)
}

function isExpired(key: ApiKeyResource, now: number): boolean {
  return now >= (expiryOf(key) ?? Infinity)
}

function compare(a: ApiKeyResource, b: ApiKeyResource): number {
  // A source writes all its times in one form of RFC 3339, UTC, so that they sort as they are: a plan's keys are compared again and again.
  const [one, other] = [a.metadata, b.metadata]
  if (one.creationTimestamp !== other.creationTimestamp) return one.creationTimestamp < other.creationTimestamp ? -1 : 1
  return one.name < other.name ? -1 : Number(one.name > other.name)
}

/** The revision of a proven Secret that the store knows nothing of, nor of a later one: the store was restored from an older backup. */
function lostRevision({ key, versions, secret }: GatheredKey): number | null {
  if (!secret?.isProven) return null
  const { uid } = key.metadata
  const revision = secret.keyId.startsWith(`${uid}-`) ? Number(secret.keyId.slice(uid.length + 1)) : NaN
  return Number.isSafeInteger(revision) && versions.every((version) => version.revision < revision) ? revision : null
}

/** The next step for an ApiKey that is gone: unusable first, then its Secrets go; null when nothing is left to do. `hasSecrets` until they were removed. */
export function reconcileGoneKey(versions: KeyVersion[], hasSecrets: boolean, now: number): KeyStep | null {
  const untold = versions.find(({ tell }) => tell.length > 0)
  if (untold) return { step: 'tell', version: untold }
  const alive = versions.find(({ state }) => state !== 'deleted')
  if (alive) return { step: 'set', id: alive.id, change: { state: 'deleted', endedAt: alive.endedAt ?? now }, tell: alive.state === 'active' ? [alive.subscription] : [] }
  return hasSecrets ? { step: 'removeSecrets' } : null
}

const TYPES = ['Ready', 'PlanActive', 'KeyActive', 'SecretSynced']

/** The status while the store cannot be reached. */
export function keyUnreachable(key: ApiKeyResource, status: ApiKeyStatus | null, now: number): ApiKeyStatus {
  const { generation } = key.metadata
  return unreachable(status, { observedGeneration: generation, conditions: [] }, TYPES, generation, now)
}
