/** What the running period granted, holds and burned: `GET /api/v1/usage`, and the MCP tool `get_usage`. */
import { Type } from 'typebox'
import { balanceOf, rollPeriod } from '../balance.ts'
import { Failure } from '../errors.ts'
import { KINDS } from '../generations.ts'
import { formatMoney } from '../money.ts'
import type { Subscription } from '../subscription/subscription.ts'

const amount = (description: string) => Type.String({ description })

/** What `mediaUsage` returns. */
export const MediaUsage = Type.Object({
  object: Type.Literal('usage'),
  plan: Type.String({ description: 'Name of the plan.' }),
  product: Type.String({ description: 'Product of the plan: Room or Media.' }),
  period: Type.Object({ start: Type.String({ format: 'date-time' }), end: Type.String({ format: 'date-time' }) }),
  granted: amount('Allowance of the period, a decimal string like every amount.'),
  available: amount('What new tasks may still cost.'),
  held: amount('Held for tasks that have not ended.'),
  burned: amount('Charged for tasks that completed.'),
  balance: amount('The same as available.'),
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

/** The usage of a subscription at `now`. Throws `plan_inactive` while the plan was never active: there is no period yet. */
export function mediaUsage(record: Subscription | null, now: number): Record<string, unknown> {
  if (!record?.media || !record.terms.media || record.anchor === null) throw new Failure('plan_inactive')
  const account = rollPeriod(record.media, record.terms.media, record.anchor, now)
  const { granted, available, held, burned } = balanceOf(account)
  const by = Object.entries(account.period.usage).flatMap(([date, verbs]) =>
    Object.entries(verbs).map(([verb, { count, burned: cost }]) => ({ date, [isKind(verb) ? 'kind' : 'operation']: verb, count, burned: formatMoney(cost) })),
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

function isKind(verb: string): boolean {
  return KINDS.some((kind) => kind === verb)
}
