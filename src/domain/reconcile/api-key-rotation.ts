/** What each version of a key must be in the store. Pure. */
import { isDeepStrictEqual } from 'node:util'
import { parseMoney } from '../money.ts'
import type { KeyVersion } from '../api-keys.ts'
import { apiOf, subscriptionId } from '../plans.ts'
import type { ApiKeyResource, Product } from '../../backends/resources/resources.ts'
import type { Reason } from './status-conditions.ts'
import type { GatheredKey } from './reconcile-api-key.ts'

export type KeyChange = Partial<Pick<KeyVersion, 'state' | 'subscription' | 'product' | 'cap' | 'expiresAt' | 'endedAt' | 'overlapUntil'>>

/** When it expires, epoch milliseconds; null if it does not. */
export function expiryOf({ spec }: ApiKeyResource): number | null {
  return spec.expirationTime === undefined ? null : Date.parse(spec.expirationTime)
}

/** The revision that is to be in use. A store that knows a later one than the manifest wins. */
export function wantedRevision({ key, versions }: GatheredKey): number {
  return Math.max(key.spec.rotationRevision, versions[0]?.revision ?? 0)
}

/**
 * What must change of a version, or null. `own` is why the key may not be used, or null. Only an active version is remembered anywhere, so only a change of
 * one has to be told; a version at the end of its overlap is refused by the time in it.
 */
export function changeOf(version: KeyVersion, facts: GatheredKey, own: Reason | null, now: number): { change: KeyChange; tell: string[] } | null {
  if (version.state === 'revoked' || version.state === 'deleted') return null
  const wanted = wantedVersion(version, facts, own, now)
  const change = Object.fromEntries(Object.entries(wanted).filter(([field, value]) => !isDeepStrictEqual(version[field as keyof KeyChange], value)))
  if (Object.keys(change).length === 0) return null
  const isOver = version.overlapUntil !== null && now >= version.overlapUntil
  const tell = version.state === 'active' && !isOver ? [...new Set([version.subscription, wanted.subscription])] : []
  return { change, tell }
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
    expiresAt: expiryOf(key),
    overlapUntil,
  }
}

/** The key's share in the units of its product, or null when it may use all of the plan. */
export function capOf({ key }: Pick<GatheredKey, 'key'>, product: Product): number | null {
  const { weeklyTokens, amountPerPeriod } = key.spec.limit ?? {}
  if (apiOf(product) === 'coding') return weeklyTokens ?? null
  return amountPerPeriod === undefined ? null : parseMoney(amountPerPeriod)
}

/**
 * A version is replaced once a later one was in use; from then on it has the plan's overlap to live, and what it had itself replaced ends. A plan that allows
 * less meanwhile shortens what is left; one that is not there does not, since it may be missing by mistake.
 */
function overlapOf(version: KeyVersion, facts: GatheredKey, now: number): number | null {
  const { overlapUntil } = version
  if (isReplaced(version, facts) && version !== usedOf(facts)[1]) return Math.min(overlapUntil ?? now, now)
  const allowedMs = facts.plan ? facts.plan.spec.keyPolicy.rotationOverlapSeconds * 1000 : null
  if (overlapUntil !== null) return allowedMs === null ? overlapUntil : Math.min(overlapUntil, now + allowedMs)
  return isReplaced(version, facts) ? now + (allowedMs ?? facts.record?.terms.rotationOverlapMs ?? 0) : null
}

/** Versions that were or are in use, the newest first. One that ended without ever being in use has no overlap. */
function usedOf({ versions }: GatheredKey): KeyVersion[] {
  return versions.filter(({ state, overlapUntil }) => state !== 'pending' && (state !== 'deleted' || overlapUntil !== null))
}

/** Whether a later one was in use, which need not be the wanted one: what a pass could not end is ended by the next, also when that finds a suspended key and a revision that nobody made yet. */
function isReplaced(version: KeyVersion, facts: GatheredKey): boolean {
  const newest = usedOf(facts)[0]
  return newest !== undefined && version.revision < newest.revision
}

function stateOf(version: KeyVersion, facts: GatheredKey, own: Reason | null, overlapUntil: number | null, now: number): KeyVersion['state'] {
  if (own === 'KeyRevoked') return 'revoked'
  const wasNeverUsed = version.state === 'pending' && version.revision < wantedRevision(facts)
  if (wasNeverUsed || (overlapUntil !== null && now >= overlapUntil && isReplaced(version, facts))) return 'deleted'
  if (version.state === 'pending') return 'pending'
  // An expired key is refused by its time, and may be given a later one.
  return own === null || own === 'KeyExpired' ? 'active' : 'suspended'
}
