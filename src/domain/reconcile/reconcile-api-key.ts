/** Reconciles an ApiKey with its versions in the store and its Secret: the next step and the status. Pure; the controller applies the step and repeats. */
import type { KeyVersion } from '../api-keys.ts'
import type { ApiKeyResource, ApiKeyStatus, PlanResource } from '../../backends/resources/resources.ts'
import type { Subscription } from '../subscription/subscription.ts'
import { isPaused, keyNotActiveReason, planNotActiveReason, storedReason, type Problem } from './not-ready-reasons.ts'
import { paused, storeUnavailable } from './status-conditions.ts'
import { statusOf } from './api-key-status.ts'
import { changeOf, wantedRevision, type KeyChange } from './api-key-rotation.ts'

/** The content of a Secret that the key owns. */
export type FoundSecret = {
  /** Entry `key-id`: the id of the key version. */
  keyId: string
  /** SHA-256 of the key in it. */
  hash: string
  /** Its MAC proves that the controller wrote it. */
  isProven: boolean
  /** Someone changed its metadata or type. */
  isModified?: true
}

export type GatheredKey = {
  key: ApiKeyResource
  /** The Plan of `spec.planRef`. */
  plan: PlanResource | null
  record: Subscription | null
  /** Whether the plan's maxKeys has room for it (`max-keys.ts`). */
  isAdmitted: boolean
  /** Versions in the store, newest revision first: all that are not deleted, and the newest. */
  versions: KeyVersion[]
  /** The Secret of `spec.secretName`, if the key owns it. */
  secret: FoundSecret | null
  /** Why a step of this pass failed: `SecretConflict`, `SealingKeyMissing` or `ClusterRefused`. */
  obstacle: Problem | null
  status: ApiKeyStatus | null
}

export type KeyStep =
  /** Notifies the subscriptions in `version.tell` that the key changed. */
  | { step: 'notify'; version: KeyVersion }
  /** The store was restored from a backup older than the Secret: the key in the Secret becomes that revision. */
  | { step: 'restoreFromSecret'; revision: number }
  | { step: 'set'; id: string; change: KeyChange; notify: string[] }
  | { step: 'mint'; revision: number }
  | { step: 'putSecret'; name: string; version: KeyVersion }
  | { step: 'removeSecrets' }

/** `waiting`: the plan is not applied yet, and its pass enqueues the key again. `steady`: nothing is left to do but to write the status. */
export type KeyDecision =
  { outcome: 'next'; next: KeyStep } | { outcome: 'waiting' } | { outcome: 'steady'; status: ApiKeyStatus; requeueAt: number | null }

/**
 * Order of issuing: pending in the store, Secret, active, status. Order of ending: unusable in the store, Secret removed. The function continues from the
 * state that any step leaves, so a crash between two steps leaves nothing behind. Of a paused key it takes the steps that end or restrict the key, and no others:
 * it must not be usable for longer because it is paused.
 */
export function reconcileKey(facts: GatheredKey, now: number): KeyDecision {
  const { key, versions, secret, obstacle } = facts
  const next = (step: KeyStep): KeyDecision => ({ outcome: 'next', next: step })
  const unnotified = versions.find(({ tell }) => tell.length > 0)
  if (unnotified) return next({ step: 'notify', version: unnotified })
  const isRefused = obstacle?.reason === 'ClusterRefused'
  const isHeld = isPaused(key)
  const lost = isRefused || isHeld ? null : lostRevision(facts)
  if (lost !== null) return next({ step: 'restoreFromSecret', revision: lost })

  const declared = keyNotActiveReason(facts, now)
  // A paused key is not resumed, and a later expirationTime is held back.
  const own = declared ?? (isHeld ? storedReason(versions, now) : null)
  for (const version of versions) {
    const changed = changeOf(version, facts, own, now)
    if (changed) return next({ step: 'set', id: version.id, ...changed })
  }
  const plan = planNotActiveReason(facts.plan, facts.record, now)
  if (plan === 'waiting') return { outcome: 'waiting' }

  const isUsable = own === null && plan === null
  const revision = wantedRevision(facts)
  const current = versions.find((version) => version.revision === revision)
  const { secretName } = key.spec
  const holds = isUsable && current !== undefined && secret?.keyId === current.id && secret.hash === current.hash && secret.isProven
  // A Secret whose repair the API server rejects, or which is not repaired, still holds the key.
  const isSynced = holds && (!secret.isModified || isRefused || isHeld)
  const { generation } = key.metadata
  const steady = (): KeyDecision => {
    // What is held back is not observed.
    const observed = isHeld && declared === null ? (facts.status?.observedGeneration ?? -1) : generation
    const { status, requeueAt } = statusOf(facts, { own, plan, isSynced }, observed, now)
    return { outcome: 'steady', status: isHeld ? paused(status, facts.status?.conditions ?? [], generation, now) : status, requeueAt }
  }
  // The store is up to date; after a rejection this pass sends no further request and makes nothing usable.
  if (isRefused) return steady()
  if (isHeld) return !isUsable && secret !== null ? next({ step: 'removeSecrets' }) : steady()

  if (isUsable && !current) return next({ step: 'mint', revision })
  if (isUsable && current && secretName !== undefined && !isSynced && obstacle === null)
    return next({ step: 'putSecret', name: secretName, version: current })
  if (isUsable && current?.state === 'pending' && (isSynced || secretName === undefined)) {
    return next({ step: 'set', id: current.id, change: { state: 'active' }, notify: [] })
  }
  if (!isUsable && secret !== null) return next({ step: 'removeSecrets' })
  return steady()
}

/** The revision of a proven Secret if the store has neither it nor a later one: the store was restored from an older backup. */
function lostRevision({ key, versions, secret }: GatheredKey): number | null {
  if (!secret?.isProven) return null
  const { uid } = key.metadata
  const revision = secret.keyId.startsWith(`${uid}-`) ? Number(secret.keyId.slice(uid.length + 1)) : NaN
  return Number.isSafeInteger(revision) && versions.every((version) => version.revision < revision) ? revision : null
}

/** The next step for a deleted ApiKey: its versions become unusable, then its Secrets are removed. Null when nothing is left to do. */
export function reconcileDeletedKey(versions: KeyVersion[], hasSecrets: boolean, now: number): KeyStep | null {
  const unnotified = versions.find(({ tell }) => tell.length > 0)
  if (unnotified) return { step: 'notify', version: unnotified }
  const alive = versions.find(({ state }) => state !== 'deleted')
  if (alive)
    return {
      step: 'set',
      id: alive.id,
      change: { state: 'deleted', endedAt: alive.endedAt ?? now },
      notify: alive.state === 'active' ? [alive.subscription] : [],
    }
  return hasSecrets ? { step: 'removeSecrets' } : null
}

const TYPES = ['Ready', 'PlanActive', 'KeyActive', 'SecretSynced']

/** The status while the store is unavailable. */
export function keyStoreUnavailable(key: ApiKeyResource, status: ApiKeyStatus | null, now: number): ApiKeyStatus {
  const { generation } = key.metadata
  return storeUnavailable(status, { observedGeneration: generation, conditions: [] }, TYPES, generation, now)
}
