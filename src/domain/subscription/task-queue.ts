/** The task queue of a subscription and its money: hold, claim, requeue, extend, close. Money moves only here (`docs/media.md`, "Money"). */
import { accountAt, balanceOf, keyUsed } from '../balance.ts'
import type { MediaTerms } from '../plans.ts'
import { takeOne } from '../rate-limit.ts'
import type { Answer, Command } from './commands.ts'
import { dayOf } from './days.ts'
import { earliestWaiting, holdOf, oldestReady, PASS_THROUGH, waitingUntil, withHold, withoutHold } from './holds.ts'
import { withReady } from './ready-tasks.ts'
import type { Step } from './reducer.ts'
import { recordedMark, type UsageRecord } from '../usage-records.ts'
import { inactiveReason, type Hold, type MediaAccount, type MediaPeriod, type Subscription } from './subscription.ts'

type In<N extends Command['op']> = Extract<Command, { op: N }>

/** `readyAt` of a task that is ready at once: no time, so that a process whose clock is milliseconds behind finds it. */
const AT_ONCE = 0

/** Puts a subscription that was never served before all that were, in the order of their first tasks: a time before any other. */
const UNSERVED_MS = 1e14

/** Holds the quoted amount of a task and appends the task to the queue. Once per task id. */
export function hold(record: Subscription | null, input: In<'hold'>, now: number): Step<Answer<'hold'>> {
  if (record && holdOf(record.media?.holds, input.task)) return { record, answer: { outcome: 'already', record } }
  if (record && input.keysVersion !== record.keysVersion) return { record, answer: { outcome: 'stale', keysVersion: record.keysVersion } }
  const reason = inactiveReason(record, now)
  const account = record && accountAt(record, now)
  if (reason || !account || !record.terms.media) return { record, answer: { outcome: 'inactive', reason: reason ?? 'PlanNotActive' } }
  const rate = takeOne(record.rate, record.terms.requestsPerMinute, now)
  if (!rate.allowed) return { record, answer: { outcome: 'rate', retryAfterMs: rate.retryAfterMs, record } }
  if (account.holds.count >= record.terms.media.maxQueuedTasks) return { record, answer: { outcome: 'queue_full' } }
  const { available } = balanceOf(account)
  if (!isAmount(input.amount) || input.amount > available) return { record, answer: { outcome: 'insufficient', available } }
  const share = input.keyCap === null ? available : Math.max(0, input.keyCap - keyUsed(account, input.keyId))
  if (input.amount > share) return { record, answer: { outcome: 'key_full', available: share } }
  // Epochs start at the record's version: a second hold of the same task, after the first was closed, never reuses an old epoch.
  const epoch = record.version
  const taken: Hold = {
    period: account.period.n,
    amount: input.amount,
    kind: input.kind,
    keyId: input.keyId,
    epoch,
    firstEpoch: epoch,
    run: null,
    readyAt: AT_ONCE,
    at: now,
  }
  const next = { ...account, holds: withHold(account.holds, input.task, taken), lastServedAt: account.lastServedAt || now - UNSERVED_MS }
  const held = withAccount({ ...record, rate: rate.rate }, next)
  return { record: held, answer: { outcome: 'held', record: held } }
}

/** Whether it can be held: no caller asks for another, and one below zero would make money. */
function isAmount(micro: number): boolean {
  return Number.isSafeInteger(micro) && micro >= 0
}

/** Claims the oldest ready task of these kinds if fewer than maxConcurrentTasks run. The same claim id gets the same answer. */
export function claim(record: Subscription | null, input: In<'claim'>, now: number): Step<Answer<'claim'>> {
  const account = record?.media
  if (!record || !account || !record.terms.media) return { record, answer: { outcome: 'none' } }
  const running = [...account.holds.running]
  const mine = running.find(([, { run }]) => run?.claim === input.claim)
  if (mine) return { record, answer: { outcome: 'claimed', task: mine[0], epoch: mine[1].epoch } }
  if (running.length >= record.terms.media.maxConcurrentTasks) return { record, answer: { outcome: 'none' } }
  const oldest = oldestReady(account.holds, input.kinds, now)
  if (!oldest) return { record, answer: { outcome: 'none' } }
  const [task, waiting] = oldest
  const epoch = waiting.epoch + 1
  // Claims of one batch share one place in the fair order.
  const servedBefore = running.find(([, { run }]) => run?.at === now)?.[1].run?.servedBefore ?? account.lastServedAt
  const holds = withHold(account.holds, task, { ...waiting, epoch, run: { claim: input.claim, at: now, servedBefore } })
  return { record: withAccount(record, { ...account, holds, lastServedAt: now }), answer: { outcome: 'claimed', task, epoch } }
}

/** Requeues a claimed task for `readyAt`. Does nothing for another epoch. */
export function requeue(record: Subscription | null, input: In<'requeue'>, now: number): Step<Answer<'requeue'>> {
  const account = record?.media
  const claimed = holdOf(account?.holds, input.task)
  if (!record || !account || !claimed?.run || claimed.epoch !== input.epoch) return { record, answer: { outcome: 'none' } }
  const readyAt = input.readyAt <= now ? AT_ONCE : input.readyAt
  const holds = withHold(account.holds, input.task, { ...claimed, run: null, readyAt, at: now })
  const { at, servedBefore } = claimed.run
  // Unless another task was served since or with it.
  const isAlone = account.lastServedAt === at && ![...holds.running.values()].some(({ run }) => run?.at === at)
  const lastServedAt = isAlone && !input.served ? servedBefore : account.lastServedAt
  const next = withAccount(record, { ...account, holds, lastServedAt })
  return { record: next, answer: withReady({ outcome: 'waiting' }, next, now) }
}

/** Raises the hold of a running task, by its present claim alone, while the plan is active, within what it and the share of its key have left of the period. */
export function extendHold(record: Subscription | null, input: In<'extendHold'>, now: number): Step<Answer<'extendHold'>> {
  const account = record && accountAt(record, now)
  const held = holdOf(account?.holds, input.task)
  if (!record || !account || !held?.run || held.epoch !== input.epoch || held.period !== account.period.n)
    return { record, answer: { outcome: 'none' } }
  const inactive = inactiveReason(record, now)
  if (inactive) return { record, answer: { outcome: 'inactive', reason: inactive } }
  if (!isAmount(input.amount)) return { record, answer: { outcome: 'insufficient' } }
  const added = input.amount - held.amount
  if (added <= 0) return { record, answer: { outcome: 'extended', added: 0 } }
  if (added > balanceOf(account).available) return { record, answer: { outcome: 'insufficient' } }
  if (input.keyCap !== null && added > input.keyCap - keyUsed(account, held.keyId)) return { record, answer: { outcome: 'key_full' } }
  const holds = withHold(account.holds, input.task, { ...held, amount: input.amount })
  return { record: withAccount(record, { ...account, holds }), answer: { outcome: 'extended', added } }
}

/** Closes a hold once: burns the actual cost, at most the amount held, and returns the rest in the same write. */
export function close(
  record: Subscription | null,
  input: In<'close'>,
  now: number,
  made: UsageRecord[] | null = null,
): Step<Answer<'close'>> {
  const account = record && accountAt(record, now)
  if (!record || !account) return { record, answer: { outcome: 'none', available: 0, held: 0, burned: 0 } }
  const held = holdOf(account.holds, input.task)
  if (!held) return { record, answer: { outcome: 'none', available: balanceOf(account).available, held: 0, burned: 0 } }
  const ran = input.actual !== null && (input.epoch === undefined || input.epoch > firstEpochOf(held))
  const cost = ran ? Math.min(Math.max(input.actual ?? 0, 0), held.amount) : 0
  const count = (period: MediaPeriod) => (period.n === held.period && ran ? burn(period, held.kind, cost, now, made !== null) : period)
  const next: MediaAccount = {
    ...account,
    holds: withoutHold(account.holds, input.task),
    period: count(account.period),
    past: account.past.map(count),
    keys: held.period === account.period.n ? burnedByKey(account, held, cost) : account.keys,
  }
  if (ran) made?.push({ id: input.task, subscription: record.id, keyId: held.keyId, at: now, kind: held.kind, cost })
  const closed = withAccount(record, next)
  const answer = { outcome: 'closed', available: balanceOf(next).available, held: held.amount, burned: cost } as const
  return { record: closed, answer: withReady(answer, closed, now) }
}

/** Of a hold of an earlier release only the claim that runs is known. */
function firstEpochOf({ epoch, firstEpoch, run }: Hold): number {
  return firstEpoch ?? (run === null ? epoch : epoch - 1)
}

/** Drops an archived period from the record once it has no open hold. */
export function archived(record: Subscription | null, input: In<'archived'>): Step<Answer<'archived'>> {
  const account = record?.media
  if (!record || !account || account.holds.periods.has(input.n) || !account.past.some(({ n }) => n === input.n))
    return { record, answer: { outcome: 'none' } }
  return {
    record: withAccount(record, { ...account, past: account.past.filter(({ n }) => n !== input.n) }),
    answer: { outcome: 'archived' },
  }
}

function burn(period: MediaPeriod, kind: string, cost: number, now: number, isRecorded: boolean): MediaPeriod {
  const day = dayOf(now)
  const before = period.usage[day]?.[kind]
  const sums = { count: (before?.count ?? 0) + 1, burned: (before?.burned ?? 0) + cost }
  const today = { ...period.usage[day], [kind]: { ...sums, ...recordedMark(isRecorded, before) } }
  return { ...period, burned: period.burned + cost, usage: { ...period.usage, [day]: today } }
}

function burnedByKey(account: MediaAccount, held: Hold, cost: number): MediaAccount['keys'] {
  const current = Object.entries(account.keys).filter(([, { period }]) => period === account.period.n)
  const before = current.find(([keyId]) => keyId === held.keyId)?.[1].burned ?? 0
  return { ...Object.fromEntries(current), [held.keyId]: { period: account.period.n, burned: before + cost } }
}

function withAccount(record: Subscription, account: MediaAccount): Subscription {
  return { ...record, media: { ...account, due: record.terms.media ? dueOf(account, record.terms.media) : [] } }
}

/** The earliest waiting task per kind, which makes a subscription due. Nothing is due while maxConcurrentTasks run. */
export function dueOf(account: MediaAccount, terms: MediaTerms): MediaAccount['due'] {
  return account.holds.running.size >= terms.maxConcurrentTasks ? [] : earliestWaiting(account.holds)
}

/** The queue position of a waiting task, 1 for the next; null when it is not waiting. */
export function queuePosition(record: Subscription | null, task: string): number | null {
  const holds = record?.media?.holds
  const hold = holdOf(holds, task)
  return !holds || !hold || hold.run !== null || hold.kind === PASS_THROUGH ? null : waitingUntil(holds, task)
}
