/**
 * The API keys of a tenant as the dashboard shows them: the versions of the store, joined with the ApiKeys where this process may read
 * them. A key of a plan that is not active is absent.
 */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { managesKeys } from '../../src/config/dashboard-mode.ts'
import { Failure, Unavailable } from '../../src/domain/errors.ts'
import { refusal, type KeyVersion } from '../../src/domain/api-keys.ts'
import { iso } from '../../src/domain/iso-time.ts'
import { formatMoney } from '../../src/domain/money.ts'
import type { DeclaredKey, Resources } from '../../src/backends/resources/resources.ts'
import { plansOf, type TenantPlan } from './plans.ts'

export type TenantKey = {
  name: string
  plan: TenantPlan
  /** Newest first; none before the controller has made the key. */
  versions: KeyVersion[]
  declared: DeclaredKey | null
}

export type KeyList = { keys: TenantKey[]; plans: TenantPlan[]; declared: DeclaredKey[] }

/** Opens the reader of keys. */
export function openKeys(app: FastifyInstance) {
  const { config, store } = app
  const resources: Resources | null = app.hasDecorator('resources') && (config.ROLE === 'all' || managesKeys(config)) ? app.resources : null

  /** The ApiKeys of the tenant; none where this process may not read them, or cannot at the moment. */
  async function declaredOf(request: FastifyRequest, tenant: string, name?: string): Promise<DeclaredKey[]> {
    if (!resources) return []
    try {
      const found = await resources.readKeys(tenant, name)
      return found.outcome === 'read' ? found.keys : []
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      request.log.warn({ event: 'keys_unread', err: error }, 'ApiKeys cannot be read')
      return []
    }
  }

  /** The keys of the active plans, ordered by name, all plans, and all ApiKeys that can be read. */
  async function list(request: FastifyRequest, tenant: string, name?: string): Promise<KeyList> {
    const plans = await plansOf(app, tenant)
    const active = plans.filter(({ reason }) => reason === null)
    const declared = await declaredOf(request, tenant, name)
    const versions = (await Promise.all(active.map(({ record }) => store.keysOf(record.id)))).flat()
    const byKey = Map.groupBy(versions, ({ keyId }) => keyId)
    const keys = new Map<string, TenantKey>()
    for (const [keyId, own] of byKey) {
      const newest = own.toSorted((a, b) => b.revision - a.revision)
      const plan = active.find(({ record }) => record.id === newest[0]?.subscription)
      if (newest[0] && plan) keys.set(keyId, { name: newest[0].name, plan, versions: newest, declared: null })
    }
    for (const one of declared) {
      const { uid } = one.key.metadata
      const plan = active.find((candidate) => candidate.name === one.key.spec.planRef.name)
      if (plan) keys.set(uid, { name: one.key.metadata.name, plan, versions: keys.get(uid)?.versions ?? [], declared: one })
      else keys.delete(uid)
    }
    const all = [...keys.values()].filter((key) => name === undefined || key.name === name)
    return { keys: all.sort((a, b) => (a.name < b.name ? -1 : 1)), plans, declared }
  }

  return {
    resources,
    list,
    /** The key of that name. Throws `not_found`, also while its plan is not active. */
    async find(request: FastifyRequest, tenant: string, name: string): Promise<TenantKey> {
      const { keys } = await list(request, tenant, name)
      // One that was deleted and issued again under its name is the one that is not ended.
      const [key] = keys.toSorted((a, b) => Number(stateOf(a, 0).state === 'Revoked') - Number(stateOf(b, 0).state === 'Revoked'))
      if (!key) throw new Failure('not_found')
      return key
    },
  }
}

type State = { state: 'Active' | 'Suspended' | 'Revoked' | 'Expired' | 'Pending'; reason: string | null; message: string | null }

/** The state of a key: what its author wants, as far as the controller has made it so. */
export function stateOf(key: TenantKey, now: number): State {
  const { versions, declared } = key
  const [newest] = versions
  const ready = declared?.status?.conditions.find(({ type }) => type === 'Ready')
  const because = ready?.status === 'False' ? { reason: ready.reason, message: ready.message } : { reason: null, message: null }
  if (declared?.key.spec.state === 'Revoked' || newest?.state === 'revoked')
    return { state: 'Revoked', reason: 'KeyRevoked', message: null }
  if (newest && newest.expiresAt !== null && now >= newest.expiresAt) return { state: 'Expired', reason: 'KeyExpired', message: null }
  if (declared?.key.spec.state === 'Suspended') return { state: 'Suspended', reason: 'KeySuspended', message: null }
  const usable = versions.some((version) => refusal(version, now) === null)
  if (!newest || (newest.state === 'pending' && !usable)) return { state: 'Pending', ...because }
  if (newest.state === 'suspended') return { state: 'Suspended', reason: because.reason ?? 'KeySuspended', message: because.message }
  const isRotating = isReplaced(usableVersion(key, now), key)
  return { state: 'Active', reason: null, message: isRotating ? NOT_MADE : null }
}

/** Of a rotation that the controller has not made yet, or cannot make. */
export const NOT_MADE = 'The new key is not made yet: the one before it is still in use.'

/** Whether a rotation wants another version than this one, made or not. */
export function isReplaced(version: KeyVersion | null, { versions, declared }: TenantKey): boolean {
  return version !== null && version.revision < Math.max(declared?.key.spec.rotationRevision ?? 0, versions[0]?.revision ?? 0)
}

/** The version that clients use now: the newest that works. Null when none does. */
export function usableVersion({ versions }: TenantKey, now: number): KeyVersion | null {
  return versions.find((version) => refusal(version, now) === null) ?? null
}

/** The ApiKey as the author saw it, by the opaque text. */
export function seenKey(revision: string): { uid: string; generation: number } {
  const at = revision.lastIndexOf('.')
  return { uid: revision.slice(0, at), generation: Number(revision.slice(at + 1)) }
}

/** A key as JSON: ISO times, amounts as decimal strings, and never the key itself. `now` is epoch milliseconds. */
export function described(key: TenantKey, now: number): object {
  const { name, plan, versions, declared } = key
  const [newest] = versions
  const shown = usableVersion(key, now) ?? newest
  const overlap = versions.find(({ overlapUntil, state }) => overlapUntil !== null && overlapUntil > now && state === 'active')
  const created = declared?.key.metadata.creationTimestamp ?? iso(versions.at(-1)?.issuedAt ?? null)
  return {
    name,
    plan: plan.name,
    product: plan.record.product,
    ...stateOf(key, now),
    prefix: shown?.prefix ?? null,
    created_at: created,
    last_used_at: iso(lastUsedAt(versions)),
    expires_at: declared?.key.spec.expirationTime ?? iso(newest?.expiresAt ?? null),
    rotation_revision: shown?.revision ?? 0,
    overlap_until: iso(overlap?.overlapUntil ?? null),
    // Opaque, and another one after every change of the ApiKey; null where it cannot be read, and the key cannot be changed here.
    revision: declared && `${declared.key.metadata.uid}.${declared.key.metadata.generation}`,
    limit: limitOf(key),
  }
}

function lastUsedAt(versions: KeyVersion[]): number | null {
  const times = versions.flatMap(({ lastUsedAt }) => lastUsedAt ?? [])
  return times.length === 0 ? null : Math.max(...times)
}

function limitOf({ plan, versions: [newest], declared }: TenantKey): object | null {
  const { weeklyTokens, amountPerPeriod } = declared?.key.spec.limit ?? {}
  if (weeklyTokens !== undefined) return { weekly_tokens: weeklyTokens }
  if (amountPerPeriod !== undefined) return { amount_per_period: amountPerPeriod }
  if (!newest || newest.cap === null) return null
  return plan.api === 'coding' ? { weekly_tokens: newest.cap } : { amount_per_period: formatMoney(newest.cap) }
}
