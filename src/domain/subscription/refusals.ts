/**
 * Coding requests that were refused, by UTC day and reason, and by key in the running week. Gateways count them and add their counts every
 * few seconds: a refusal itself writes nothing.
 */
import type { FailureCode } from '../errors.ts'
import { roll } from '../token-windows.ts'
import type { Answer, Command } from './commands.ts'
import { addUp, dayOf, newestDays } from './days.ts'
import type { Step } from './reducer.ts'
import type { CodingAccount, Subscription } from './subscription.ts'

/** Why admission refuses a request of a valid key: the code of its error. */
export type RefusalReason = Extract<
  FailureCode,
  | 'plan_inactive'
  | 'rate_limited'
  | 'session_limit_reached'
  | 'weekly_limit_reached'
  | 'key_limit_reached'
  | 'concurrency_limit'
  | 'window_reserved'
>

/** Refused requests by reason. */
export type RefusedDay = Partial<Record<RefusalReason, number>>

/** Ids of counts that were added: a write with an unknown outcome is repeated within seconds. */
const COUNTS = 16
/** With a counter of the week. Deleted keys keep theirs until the week ends. */
const MAX_KEYS = 200

/** Adds the counts of one gateway to the day and the week of `now`. */
export function countRefusals(
  record: Subscription | null,
  input: Extract<Command, { op: 'countRefusals' }>,
  now: number,
): Step<Answer<'countRefusals'>> {
  if (!record?.coding) return { record, answer: { outcome: 'none' } }
  const account = roll(record.coding, now)
  const { days, counts } = account.refusals ?? { days: {}, counts: [] }
  if (counts.includes(input.id)) return { record, answer: { outcome: 'already' } }
  const day = dayOf(now)
  const next: CodingAccount = {
    ...account,
    keys: withRefusals(account, input.keys),
    refusals: {
      days: newestDays({ ...days, [day]: addUp<RefusedDay>(days[day] ?? {}, input.reasons) }),
      counts: [...counts, input.id].slice(-COUNTS),
    },
  }
  return { record: { ...record, coding: next }, answer: { outcome: 'counted' } }
}

function withRefusals({ keys, weekly }: CodingAccount, refused: Record<string, number>): CodingAccount['keys'] {
  const next = { ...keys }
  for (const [keyId, count] of Object.entries(refused)) {
    const before = next[keyId] ?? { week: weekly.n, used: 0 }
    if (keyId in next || Object.keys(next).length < MAX_KEYS) next[keyId] = { ...before, refused: (before.refused ?? 0) + count }
  }
  return next
}

/** All refusals of a day. */
export function refusedOn(day: RefusedDay | undefined): number {
  return Object.values(day ?? {}).reduce((sum, count) => sum + count, 0)
}
