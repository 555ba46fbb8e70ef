/** The plans of a tenant: `/dashboard/api/plans`, and what keys and usage need of them. */
import type { FastifyInstance } from 'fastify'
import { accountAt, balanceOf } from '../../src/domain/balance.ts'
import { Failure } from '../../src/domain/errors.ts'
import { iso } from '../../src/domain/iso-time.ts'
import { formatMoney } from '../../src/domain/money.ts'
import { apiOf, planNameOf, type Api } from '../../src/domain/plans.ts'
import { MESSAGES } from '../../src/domain/reconcile/not-ready-reasons.ts'
import { inactiveReason, type InactiveReason, type MediaAccount, type Subscription } from '../../src/domain/subscription/subscription.ts'
import { viewOf, type WindowView } from '../../src/domain/token-windows.ts'
import { sessionOf } from './sessions.ts'

const MAX_PLANS = 500

export type TenantPlan = {
  name: string
  api: Api
  record: Subscription
  /** Why it is not active; null when it is. */
  reason: InactiveReason | null
}

/** The plans of a tenant that have not been removed, ordered by name. */
export async function plansOf(app: FastifyInstance, tenant: string): Promise<TenantPlan[]> {
  const records = await app.store.subscriptionsOf(tenant, '', MAX_PLANS)
  const now = app.clock()
  return records
    .filter(({ plan }) => plan !== null)
    .map((record) => ({ name: planNameOf(record.id), api: apiOf(record.product), record, reason: inactiveReason(record, now) }))
}

/** The plan of that name among those of a tenant, or the only active one of the API. Throws `not_found`, or `invalid_request` when there are several. */
export function planOf(all: TenantPlan[], api: Api, name: string | undefined): TenantPlan {
  const plans = all.filter((plan) => plan.api === api)
  const found = name === undefined ? plans.filter(({ reason }) => reason === null) : plans.filter((plan) => plan.name === name)
  const [first, ...others] = found.length > 0 || name !== undefined ? found : plans
  if (!first) throw new Failure('not_found', { message: 'You have no such plan.' })
  if (others.length > 0)
    throw new Failure('invalid_request', { message: 'You have several such plans: give the one as plan.', param: 'plan' })
  return first
}

/**
 * The names of a tenant's keys by `keyId`: of all its plans, because a key that was used under one may have moved. Removed keys have none, nor have
 * those of removed plans.
 */
export async function keyNamesOf(app: FastifyInstance, plans: TenantPlan[]): Promise<Map<string, string>> {
  const keys = await Promise.all(plans.map(({ record }) => app.store.keysOf(record.id)))
  return new Map(keys.flat().map(({ keyId, name }) => [keyId, name]))
}

/** Registers `GET /plans`, behind a session. */
export function planRoutes(app: FastifyInstance): void {
  app.get('/plans', async (request) => ({
    data: (await plansOf(app, sessionOf(request).tenant)).map((plan) => described(plan, app.clock())),
  }))
}

/** What is locked, and why. */
export function lockOf({ name, record, reason }: TenantPlan): object {
  return { plan: name, product: record.product, reason, message: reason && MESSAGES[reason] }
}

function described({ name, api, record, reason }: TenantPlan, now: number): object {
  const { terms, media, coding } = record
  const account = media && accountAt(record, now)
  const windows = coding && terms.coding ? viewOf(coding, terms.coding, now) : null
  return {
    name,
    display_name: terms.displayName,
    product: record.product,
    state: reason === null ? 'Active' : 'Inactive',
    reason,
    message: reason && MESSAGES[reason],
    starts_at: iso(record.activeFrom),
    expires_at: iso(record.activeUntil),
    unlocks: api === 'media' ? ['media_api', 'ai_room'] : ['coding_api'],
    period: account ? periodOf(account) : null,
    summary: {
      ...(account ? { media: allowanceOf(account) } : {}),
      ...(windows ? { coding: { session: windowOf(windows.session), weekly: windowOf(windows.weekly) } } : {}),
    },
    key_policy: { max_keys: terms.maxKeys, rotation_overlap_seconds: terms.rotationOverlapMs / 1000 },
  }
}

/** Start and end of the running period, as ISO times. */
export function periodOf({ period: { start, end } }: Pick<MediaAccount, 'period'>): object {
  return { start: iso(start), end: iso(end) }
}

/** Decimal strings. */
export function allowanceOf(account: MediaAccount): Record<'allowance' | 'held' | 'burned' | 'remaining', string> {
  const { available, held, burned } = balanceOf(account)
  return {
    allowance: formatMoney(account.period.allowance),
    held: formatMoney(held),
    burned: formatMoney(burned),
    remaining: formatMoney(available),
  }
}

/** Tokens. `resets_at` is null while no session runs. */
export function windowOf({ limit, used, reserved, remaining, resetsAt }: WindowView): object {
  return { limit, used, reserved, remaining, resets_at: iso(resetsAt) }
}
