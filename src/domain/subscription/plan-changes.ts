/** Plan changes: applies a declared Plan to the record and removes it. Usage survives every edit, removal and return. */
import { apiOf, tenantOf, type Terms } from '../plans.ts'
import { emptyLearned } from '../token-windows.ts'
import { firstPeriod, rollPeriod } from '../balance.ts'
import { underRate } from '../rate-limit.ts'
import type { Answer, Command } from './commands.ts'
import { NO_HOLDS } from './holds.ts'
import { dueOf } from './task-queue.ts'
import type { Step } from './reducer.ts'
import type { CodingAccount, MediaAccount, Subscription } from './subscription.ts'

type In<N extends Command['op']> = Extract<Command, { op: N }>

/** Applies a Plan. An equal generation is applied again, because PLAN_LIMITS may have changed; an older one of the same uid, or an older resource, is not. */
export function applyPlan(record: Subscription | null, input: In<'applyPlan'>, now: number, id: string): Step<Answer<'applyPlan'>> {
  if (record && apiOf(record.product) !== apiOf(input.product)) return { record, answer: { outcome: 'product_changed' } }
  if (record?.plan && isOlder(input.plan, record.plan)) return { record, answer: { outcome: 'older' } }
  const base = record ?? emptyRecord(id, input)
  const anchor = anchorOf(base, input, now)
  const next: Subscription = {
    ...base,
    product: input.product,
    plan: input.plan,
    terms: input.terms,
    lowered: (base.lowered ?? true) || lowers(base.terms, input.terms),
    state: input.state,
    activeFrom: input.activeFrom,
    activeUntil: input.activeUntil,
    verdict: input.verdict,
    anchor,
    rate: underRate(base.rate, input.terms.requestsPerMinute, now),
    media: mediaUnder(base, input, anchor, now),
    coding: codingUnder(base, input.terms, anchor),
  }
  return { record: next, answer: { outcome: 'applied' } }
}

function isOlder(incoming: In<'applyPlan'>['plan'], stored: NonNullable<Subscription['plan']>): boolean {
  return incoming.uid === stored.uid ? incoming.generation < stored.generation : incoming.createdAt < stored.createdAt
}

/** Whether what is in use under one plan may be above the limits of the next. */
function lowers(from: Terms, to: Terms): boolean {
  const limitsOf = ({ media, coding }: Terms) => [
    media?.allowance,
    media?.maxConcurrentTasks,
    media?.maxQueuedTasks,
    coding?.maxConcurrentRequests,
  ]
  const after = limitsOf(to)
  return limitsOf(from).some((limit, n) => (after[n] ?? Infinity) < (limit ?? 0))
}

/** The first activation, stored once. A new start time moves it until then; not where a wrong clock had activated the plan before, and it was used. */
function anchorOf(record: Subscription, input: In<'applyPlan'>, now: number): number | null {
  if (record.anchor !== null && (record.anchor <= now || isUsed(record))) return record.anchor
  if (input.state !== 'Active' || input.verdict !== null) return record.anchor
  return Math.max(now, input.activeFrom ?? now)
}

function isUsed({ media, coding }: Subscription): boolean {
  const isHeld = media !== null && (media.holds.count > 0 || media.past.length > 0 || Object.keys(media.period.usage).length > 0)
  return isHeld || (coding !== null && (coding.session !== null || Object.keys(coding.usage).length > 0))
}

function codingUnder(record: Subscription, terms: Terms, anchor: number | null): CodingAccount | null {
  if (!terms.coding || anchor === null) return record.coding
  if (!record.coding) {
    return { session: null, weekly: { n: 0, start: anchor, used: 0 }, usage: {}, reservations: {}, keys: {}, ...emptyLearned }
  }
  if (anchor === record.anchor) return record.coding
  return { ...record.coding, weekly: { n: 0, start: anchor, used: 0 } }
}

/**
 * Periods that ended before the edit, and the one that runs, are of the terms that were in force; refused ones never were. Before its start a
 * plan has no running period to keep.
 */
function mediaUnder(
  record: Subscription,
  { terms: { media: terms }, verdict }: In<'applyPlan'>,
  anchor: number | null,
  now: number,
): MediaAccount | null {
  if (!terms || anchor === null) return record.media
  if (!record.media || anchor !== record.anchor || (anchor > now && verdict === null && !isUsed(record))) {
    return { period: firstPeriod(terms, anchor), past: [], holds: NO_HOLDS, keys: {}, lastServedAt: 0, due: [] }
  }
  const inForce = record.verdict === null ? record.terms.media : verdict === null ? terms : null
  const running = inForce ? rollPeriod(record.media, inForce, anchor, now) : record.media
  const account = { ...running, period: { ...running.period, allowance: terms.allowance } }
  return { ...account, due: dueOf(account, terms) }
}

function emptyRecord(id: string, input: In<'applyPlan'>): Subscription {
  return {
    id,
    version: 0,
    at: 0,
    tenant: tenantOf(id),
    product: input.product,
    plan: null,
    terms: input.terms,
    lowered: false,
    state: input.state,
    activeFrom: null,
    activeUntil: null,
    verdict: null,
    anchor: null,
    keysVersion: 1,
    rate: { tat: 0 },
    media: null,
    coding: null,
  }
}

/** Removes the Plan with that uid: the subscription is inactive until a Plan returns, and keeps its usage. */
export function removePlan(record: Subscription | null, input: In<'removePlan'>): Step<Answer<'removePlan'>> {
  if (record?.plan?.uid !== input.uid) return { record, answer: { outcome: 'already' } }
  return { record: { ...record, plan: null }, answer: { outcome: 'removed' } }
}

/** One of the keys changed: cached key facts become stale. Without a record there are none. */
export function keysChanged(record: Subscription | null): Step<Answer<'keysChanged'>> {
  if (!record) return { record, answer: { outcome: 'none' } }
  const keysVersion = record.keysVersion + 1
  return { record: { ...record, keysVersion }, answer: { outcome: 'changed', keysVersion } }
}
