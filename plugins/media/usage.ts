/** `GET /api/v1/usage`: what the running period granted, holds and burned. */
import { balanceOf, rollPeriod } from '../../src/balance.ts'
import { Failure } from '../../src/errors.ts'
import { formatMoney } from '../../src/money.ts'
import type { Subscription } from '../../src/subscription/subscription.ts'

/** The usage of a subscription at `now`. Throws `plan_inactive` while the plan was never active: there is no period yet. */
export function usageOf(record: Subscription | null, now: number): Record<string, unknown> {
  if (!record?.media || !record.terms.media || record.anchor === null) throw new Failure('plan_inactive')
  const account = rollPeriod(record.media, record.terms.media, record.anchor, now)
  const { granted, available, held, burned } = balanceOf(account)
  const by = Object.entries(account.period.usage).flatMap(([date, verbs]) =>
    Object.entries(verbs).map(([verb, { count, burned: cost }]) => ({ date, [KINDS.has(verb) ? 'kind' : 'operation']: verb, count, burned: formatMoney(cost) })),
  )
  return {
    object: 'usage',
    plan: record.terms.displayName,
    product: record.product,
    period: { start: new Date(account.period.start).toISOString(), end: new Date(account.period.end).toISOString() },
    granted: formatMoney(granted),
    available: formatMoney(available),
    held: formatMoney(held),
    burned: formatMoney(burned),
    balance: formatMoney(available),
    by,
  }
}

const KINDS = new Set(['image', 'video', 'music'])
