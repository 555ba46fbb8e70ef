/** Media usage of the running period: `GET /api/v1/usage`, and the MCP tool `get_usage`. */
import { Type } from 'typebox'
import { accountAt, availableToKey, balanceOf, keyUse } from '../domain/balance.ts'
import { Failure } from '../domain/errors.ts'
import { KINDS } from '../domain/media-generations.ts'
import type { KeyVersion } from '../domain/api-keys.ts'
import { formatMoney } from '../domain/money.ts'
import { planNameOf } from '../domain/plans.ts'
import type { MediaAccount, Subscription } from '../domain/subscription/subscription.ts'

const amount = (description: string) => Type.String({ description })

/** What `mediaUsage` returns. */
export const MediaUsage = Type.Object({
  object: Type.Literal('usage'),
  plan: Type.String({ description: 'Name of the plan.' }),
  product: Type.String({ description: 'Product of the plan: Room or Media.' }),
  period: Type.Object({ start: Type.String({ format: 'date-time' }), end: Type.String({ format: 'date-time' }) }),
  granted: amount('Allowance of the period, a decimal string like every amount.'),
  available: amount('What is left for new tasks.'),
  held: amount('Held for tasks that have not ended.'),
  burned: amount('Charged for tasks that completed, or were canceled while they ran.'),
  balance: amount('The same as available.'),
  key: Type.Optional(
    Type.Object(
      {
        limit: amount('The share.'),
        available: amount('What is left for its new tasks.'),
        held: amount('Held for its tasks.'),
        burned: amount('Charged for its tasks.'),
      },
      { description: "The key's own share of the period, where it has one." },
    ),
  ),
  by: Type.Array(
    Type.Object({
      date: Type.String({ description: 'Day in UTC.' }),
      kind: Type.Optional(Type.String()),
      operation: Type.Optional(Type.String()),
      count: Type.Integer(),
      burned: amount('Charged on that day for that kind or operation.'),
    }),
  ),
})

/** The usage of a subscription at `now`, and of the caller's key. Throws `plan_inactive` before the first activation of the plan: there is no period yet. */
export function mediaUsage(record: Subscription | null, key: Pick<KeyVersion, 'keyId' | 'cap'>, now: number): Record<string, unknown> {
  const account = record && accountAt(record, now)
  if (!account) throw new Failure('plan_inactive')
  const { granted, available, held, burned } = balanceOf(account)
  const by = Object.entries(account.period.usage).flatMap(([date, kinds]) =>
    Object.entries(kinds).map(([kind, { count, burned: cost }]) => ({
      date,
      [KINDS.some((one) => one === kind) ? 'kind' : 'operation']: kind,
      count,
      burned: formatMoney(cost),
    })),
  )
  return {
    object: 'usage',
    plan: planNameOf(record.id),
    product: record.product,
    period: { start: new Date(account.period.start).toISOString(), end: new Date(account.period.end).toISOString() },
    granted: formatMoney(granted),
    available: formatMoney(available),
    held: formatMoney(held),
    burned: formatMoney(burned),
    balance: formatMoney(available),
    ...(key.cap === null ? {} : { key: shareOf(account, { keyId: key.keyId, cap: key.cap }) }),
    by,
  }
}

function shareOf(account: MediaAccount, key: { keyId: string; cap: number }): Record<string, string> {
  const { burned, held } = keyUse(account, key.keyId)
  return {
    limit: formatMoney(key.cap),
    available: formatMoney(availableToKey(account, key)),
    held: formatMoney(held),
    burned: formatMoney(burned),
  }
}
