/** Key rotation: the revision in use, the overlap of replaced versions, and the state that each version must have in the store. Pure. */
import { isDeepStrictEqual } from 'node:util'
import { parseMoney } from '../money.ts'
import type { KeyVersion } from '../api-keys.ts'
import { apiOf, subscriptionId } from '../plans.ts'
import type { ApiKeyResource, Product } from '../../backends/resources/resources.ts'
import { expiryOf, isPaused, type Reason } from './not-ready-reasons.ts'
import type { GatheredKey } from './reconcile-api-key.ts'

export type KeyChange = Partial<Pick<KeyVersion, 'state' | 'subscription' | 'product' | 'cap' | 'expiresAt' | 'endedAt' | 'overlapUntil'>>

/** The revision to use: that of the manifest, or a later one if the store has it. A paused key is not rotated. */
export function wantedRevision({ key, versions: [newest] }: GatheredKey): number {
  return newest && (isPaused(key) || newest.revision > key.spec.rotationRevision) ? newest.revision : key.spec.rotationRevision
}

/**
 * The change that a version needs, or null. `own` is why the key is not active, or null. `notify` names the subscriptions to notify: only active versions are
 * cached, so only a change of one concerns them; a version past its overlap is refused by the time stored in it.
 */
export function changeOf(
  version: KeyVersion,
  facts: GatheredKey,
  own: Reason | null,
  now: number,
): { change: KeyChange; notify: string[] } | null {
  if (version.state === 'revoked' || version.state === 'deleted') return null
  const wanted = wantedVersion(version, facts, own, now)
  const change = Object.fromEntries(
    Object.entries(wanted).filter(([field, value]) => !isDeepStrictEqual(version[field as keyof KeyChange], value)),
  )
  if (Object.keys(change).length === 0) return null
  const isOver = version.overlapUntil !== null && now >= version.overlapUntil
  const notify = version.state === 'active' && !isOver ? [...new Set([version.subscription, wanted.subscription])] : []
  return { change, notify }
}

function wantedVersion(version: KeyVersion, facts: GatheredKey, own: Reason | null, now: number): Required<KeyChange> {
  const { key, plan } = facts
  const isMoving = own !== 'ProductChanged' || version.state === 'pending'
  const product = isMoving && plan ? plan.spec.product : version.product
  const overlapUntil = overlapOf(version, facts, now)
  const state = stateOf(version, facts, own, overlapUntil, now)
  return {
    state,
    endedAt: state === 'revoked' || state === 'deleted' ? now : null,
    subscription: isMoving ? subscriptionId(key.metadata.namespace, key.spec.planRef.name) : version.subscription,
    product,
    cap: capOf(facts, product),
    expiresAt: expiryIn(version, key),
    overlapUntil,
  }
}

/** The end of a version, which cannot be moved later while the key is paused. */
function expiryIn({ expiresAt }: KeyVersion, key: ApiKeyResource): number | null {
  const declared = expiryOf(key)
  return isPaused(key) && expiresAt !== null ? Math.min(expiresAt, declared ?? Infinity) : declared
}

/** The key's limit in tokens per week (Coding) or micro-units per period (Room, Media); null when it may use the whole plan. */
export function capOf({ key }: Pick<GatheredKey, 'key'>, product: Product): number | null {
  const { weeklyTokens, amountPerPeriod } = key.spec.limit ?? {}
  if (apiOf(product) === 'coding') return weeklyTokens ?? null
  return amountPerPeriod === undefined ? null : parseMoney(amountPerPeriod)
}

/**
 * End of a version's overlap, or null for one that is not replaced. A version is replaced once a later one was in use: it then works for
 * the plan's overlap, and the version that it replaced itself ends. A shorter overlap in the plan shortens the remaining time; a missing
 * plan does not, since it may be missing by mistake.
 */
function overlapOf(version: KeyVersion, facts: GatheredKey, now: number): number | null {
  const { overlapUntil } = version
  if (isReplaced(version, facts) && version !== usedOf(facts)[1]) return Math.min(overlapUntil ?? now, now)
  const allowedMs = facts.plan ? facts.plan.spec.keyPolicy.rotationOverlapSeconds * 1000 : null
  if (overlapUntil !== null) return allowedMs === null ? overlapUntil : Math.min(overlapUntil, now + allowedMs)
  return isReplaced(version, facts) ? now + (allowedMs ?? facts.record?.terms.rotationOverlapMs ?? 0) : null
}

/** Versions that were or are in use, newest first. A deleted version without an overlap was never in use. */
function usedOf({ versions }: GatheredKey): KeyVersion[] {
  return versions.filter(({ state, overlapUntil }) => state !== 'pending' && (state !== 'deleted' || overlapUntil !== null))
}

/**
 * Whether a later version was in use. That need not be the wanted revision: an interrupted pass is completed by the next even if the key is
 * suspended by then.
 */
function isReplaced(version: KeyVersion, facts: GatheredKey): boolean {
  const newest = usedOf(facts)[0]
  return newest !== undefined && version.revision < newest.revision
}

function stateOf(
  version: KeyVersion,
  facts: GatheredKey,
  own: Reason | null,
  overlapUntil: number | null,
  now: number,
): KeyVersion['state'] {
  if (own === 'KeyRevoked') return 'revoked'
  const wasNeverUsed = version.state === 'pending' && version.revision < wantedRevision(facts)
  if (wasNeverUsed || (overlapUntil !== null && now >= overlapUntil && isReplaced(version, facts))) return 'deleted'
  if (version.state === 'pending') return 'pending'
  if (version.state === 'suspended' && isPaused(facts.key)) return 'suspended'
  // The stored time refuses an expired key, and its expirationTime may be moved later.
  return own === null || own === 'KeyExpired' ? 'active' : 'suspended'
}
