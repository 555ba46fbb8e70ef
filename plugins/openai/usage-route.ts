/** Body of `GET /v1/usage`: both token windows, and the key's own share. */
import type { KeyVersion } from '../../src/domain/api-keys.ts'
import { planNameOf } from '../../src/domain/plans.ts'
import { inactiveReason, planInactive, type Subscription } from '../../src/domain/subscription/subscription.ts'
import { reservedIn, roll, viewOf, type WindowView } from '../../src/domain/token-windows.ts'

type WindowUsage = { limit: number; used: number; reserved: number; remaining: number; resets_at: number | null }

export type UsageBody = {
  object: 'usage'
  plan: string
  session: WindowUsage
  weekly: WindowUsage
  /** Tokens beyond the weekly limit. */
  overshoot: number
  /** The key's own cap within the week, if it has one. */
  key?: { limit: number; used: number; reserved: number; remaining: number }
}

/** `now` is epoch milliseconds, times in the body are epoch seconds. Throws `plan_inactive` when the plan has no coding account. */
export function usageBody(record: Subscription | null, key: Pick<KeyVersion, 'keyId' | 'cap'> | null, now: number): UsageBody {
  if (!record?.coding || !record.terms.coding) throw planInactive(inactiveReason(record, now) ?? 'PlanNotActive')
  const { session, weekly } = viewOf(record.coding, record.terms.coding, now)
  return {
    object: 'usage',
    plan: planNameOf(record.id),
    session: windowUsage(session),
    weekly: windowUsage(weekly),
    overshoot: Math.max(0, weekly.used - weekly.limit),
    ...(key && key.cap !== null ? { key: shareOf(record.coding, key.keyId, key.cap, now) } : {}),
  }
}

function windowUsage({ limit, used, reserved, remaining, resetsAt }: WindowView): WindowUsage {
  return { limit, used, reserved, remaining, resets_at: resetsAt === null ? null : Math.ceil(resetsAt / 1000) }
}

function shareOf(account: NonNullable<Subscription['coding']>, keyId: string, limit: number, now: number): NonNullable<UsageBody['key']> {
  const rolled = roll(account, now)
  const used = rolled.keys[keyId]?.used ?? 0
  const reserved = reservedIn(rolled, keyId).key
  return { limit, used, reserved, remaining: Math.max(0, limit - used - reserved) }
}
