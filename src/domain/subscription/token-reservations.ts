/** Token reservations: admission and settlement of coding requests in both token windows (`docs/coding.md` states the bound). */
import { takeOne } from '../rate-limit.ts'
import type { CodingTerms } from '../plans.ts'
import {
  chargeOf,
  hiddenOutput,
  learn,
  learnedOutput,
  promptRatio,
  reservedIn,
  roll,
  WEEK_MS,
  windowsOf,
  type Reserved,
  type Usage,
} from '../token-windows.ts'
import type { Answer, Command, Shortage } from './commands.ts'
import { put, without } from './copy-on-write.ts'
import { dayOf, newestDays } from './days.ts'
import type { Step } from './reducer.ts'
import { inactiveReason, type CodingAccount, type CodingDay, type Reservation, type Subscription } from './subscription.ts'

type In<N extends Command['op']> = Extract<Command, { op: N }>

/** Admits one request by rate, both windows, the key's cap and concurrency, and reserves its estimate. */
export function admit(record: Subscription | null, input: In<'admit'>, now: number): Step<Answer<'admit'>> {
  if (record && input.keysVersion !== record.keysVersion) {
    return { record, answer: { outcome: 'stale', keysVersion: record.keysVersion } }
  }
  const reason = inactiveReason(record, now)
  if (reason || !record?.coding || !record.terms.coding)
    return { record, answer: { outcome: 'inactive', reason: reason ?? 'PlanNotActive' } }
  const account = roll(record.coding, now)
  const terms = record.terms.coding
  const known = account.reservations[input.id]
  if (known) return { record, answer: admitted(account, terms, known, input, reservedIn(account, null)) }

  const rate = takeOne(record.rate, record.terms.requestsPerMinute, now)
  if (!rate.allowed) return { record, answer: { outcome: 'rate', retryAfterMs: rate.retryAfterMs } }
  const reserved = reservedIn(account, input.keyId)
  const tokens = grant(account, terms, input, reserved)
  if (typeof tokens !== 'number') return { record, answer: { ...tokens, windows: windowsOf(account, terms, reserved) } }

  const session = account.session ?? { start: now, end: now + terms.sessionMs, used: 0 }
  const reservation: Reservation = {
    instance: input.instance,
    session: session.start,
    week: account.weekly.n,
    keyId: input.keyId,
    tokens,
    bytes: input.promptBytes,
    at: now,
  }
  const next = { ...account, session, reservations: put(account.reservations, input.id, reservation) }
  return {
    record: { ...record, rate: rate.rate, coding: next },
    answer: admitted(next, terms, reservation, input, { session: reserved.session + tokens, weekly: reserved.weekly + tokens }),
  }
}

function admitted(
  account: CodingAccount,
  terms: CodingTerms,
  reservation: Reservation,
  input: In<'admit'>,
  reserved: Pick<Reserved, 'session' | 'weekly'>,
): Answer<'admit'> {
  return {
    outcome: 'admitted',
    reserved: reservation.tokens,
    maxOutputTokens: Math.min(input.maxOutputTokens ?? terms.maxOutputTokens, terms.maxOutputTokens),
    onAbort: terms.onAbort,
    weights: terms.weights,
    ratio: promptRatio(account),
    hidden: hiddenOutput(account),
    windows: windowsOf(account, terms, reserved),
  }
}

/** A window is full when *used* tokens reach its limit; reservations alone never fill it for hours. */
function fullness(account: CodingAccount, terms: CodingTerms, input: In<'admit'>): 'weekly_full' | 'session_full' | 'key_full' | null {
  const session = account.session && account.session.used >= terms.sessionTokens ? account.session : null
  if (account.weekly.used >= terms.weeklyTokens) {
    // When both are full, the one that resets later decides.
    return session && session.end > account.weekly.start + WEEK_MS ? 'session_full' : 'weekly_full'
  }
  if (session) return 'session_full'
  if (input.keyCap !== null && keyUsed(account, input.keyId) >= input.keyCap) return 'key_full'
  return null
}

function keyUsed(account: CodingAccount, keyId: string): number {
  const counter = account.keys[keyId]
  return counter && counter.week === account.weekly.n ? counter.used : 0
}

/**
 * The tokens to reserve, or why there are none: a window is full, too many requests are in flight, or their reservations leave too little
 * room. Used plus reserved never exceeds a limit here: a lone request gets what is left, since a window with room always admits one
 * request. The published bound follows from this.
 */
function grant(
  account: CodingAccount,
  terms: CodingTerms,
  input: In<'admit'>,
  reserved: Reserved,
): number | { outcome: NonNullable<ReturnType<typeof fullness>> | 'concurrency' } | ({ outcome: 'reserved' } & Shortage) {
  const full = fullness(account, terms, input)
  if (full) return { outcome: full }
  if (reserved.count >= terms.maxConcurrentRequests) return { outcome: 'concurrency' }
  const rooms: { of: Shortage['of']; left: number; taken: number }[] = [
    { of: 'window', left: terms.sessionTokens - (account.session?.used ?? 0) - reserved.session, taken: reserved.session },
    { of: 'window', left: terms.weeklyTokens - account.weekly.used - reserved.weekly, taken: reserved.weekly },
  ]
  if (input.keyCap !== null) {
    // First: who waits for its key waits for nobody else.
    rooms.unshift({ of: 'key', left: input.keyCap - keyUsed(account, input.keyId) - reserved.key, taken: reserved.key })
  }
  let tokens = estimateOf(account, terms, input)
  for (const room of rooms) {
    if (tokens <= room.left) continue
    if (room.taken > 0) return { outcome: 'reserved', of: room.of, needs: tokens, left: room.left }
    tokens = room.left
  }
  return tokens
}

/** The estimate: prompt bytes × the learned ratio, plus the client's output limit or else the learned output. */
function estimateOf(account: CodingAccount, terms: CodingTerms, input: In<'admit'>): number {
  const output = Math.min(input.maxOutputTokens ?? learnedOutput(account.outputs), terms.maxOutputTokens)
  const prompt = Math.ceil((input.promptBytes * promptRatio(account)) / 1000)
  return Math.max(1, chargeOf({ input: prompt, cachedInput: 0, output }, terms.weights))
}

/** Extends the reservation of a stream that outgrew it to at least `tokens`, even past the limit. */
export function extend(record: Subscription | null, input: In<'extend'>): Step<Answer<'extend'>> {
  const reservation = record?.coding?.reservations[input.id]
  if (!record?.coding || !reservation) return { record, answer: { outcome: 'gone' } }
  if (reservation.tokens >= input.tokens) return { record, answer: { outcome: 'extended', reserved: reservation.tokens } }
  const reservations = put(record.coding.reservations, input.id, { ...reservation, tokens: input.tokens })
  return { record: { ...record, coding: { ...record.coding, reservations } }, answer: { outcome: 'extended', reserved: input.tokens } }
}

/** Charges a request once, to the windows that admitted it, and frees its reservation. Without usage nothing is charged. */
export function settle(record: Subscription | null, input: In<'settle'>, now: number): Step<Answer<'settle'>> {
  const reservation = record?.coding?.reservations[input.id]
  if (!record?.coding || !record.terms.coding || !reservation) return { record, answer: { outcome: 'already' } }
  const { usage } = input
  const charged = usage ? chargeOf(usage, record.terms.coding.weights) : 0
  let account = charge(roll(record.coding, now), { [input.id]: reservation }, () => charged)
  if (usage) account = { ...account, usage: countDay(account.usage, now, usage, charged) }
  if (usage && !input.estimated) account = { ...account, ...learn(account, usage, reservation.bytes, input.seen ?? 0) }
  return { record: { ...record, coding: account }, answer: { outcome: 'settled', charged } }
}

/** Expires the reservations of a dead gateway: charged at their estimates, since the usage is unknown. */
export function expire(record: Subscription | null, input: In<'expire'>, now: number): Step<Answer<'expire'>> {
  const open = Object.entries(record?.coding?.reservations ?? {}).filter(([, reservation]) => reservation.instance === input.instance)
  if (!record?.coding || open.length === 0) return { record, answer: { outcome: 'already' } }
  let account = charge(roll(record.coding, now), Object.fromEntries(open), (reservation) => reservation.tokens)
  for (const [, reservation] of open) {
    account = { ...account, usage: countDay(account.usage, now, { input: 0, cachedInput: 0, output: 0 }, reservation.tokens) }
  }
  return { record: { ...record, coding: account }, answer: { outcome: 'settled', count: open.length } }
}

/** Removes reservations and adds their charges to the session, week and keys that admitted them, if those windows still run. */
function charge(
  account: CodingAccount,
  settled: Record<string, Reservation>,
  chargeFor: (reservation: Reservation) => number,
): CodingAccount {
  let { session, weekly, keys } = account
  for (const reservation of Object.values(settled)) {
    const tokens = chargeFor(reservation)
    if (session && session.start === reservation.session) session = { ...session, used: session.used + tokens }
    if (weekly.n !== reservation.week || tokens === 0) continue
    weekly = { ...weekly, used: weekly.used + tokens }
    keys = {
      ...keys,
      [reservation.keyId]: { ...keys[reservation.keyId], week: weekly.n, used: (keys[reservation.keyId]?.used ?? 0) + tokens },
    }
  }
  return { ...account, session, weekly, keys, reservations: without(account.reservations, Object.keys(settled)) }
}

/** Adds one request to its UTC day and keeps the newest days. */
function countDay(usage: Record<string, CodingDay>, now: number, tokens: Usage, charged: number): Record<string, CodingDay> {
  const day = dayOf(now)
  const before = usage[day] ?? { requests: 0, input: 0, cachedInput: 0, output: 0, charged: 0 }
  const today: CodingDay = {
    requests: before.requests + 1,
    input: before.input + tokens.input,
    cachedInput: before.cachedInput + tokens.cachedInput,
    output: before.output + tokens.output,
    charged: before.charged + charged,
  }
  const days = { ...usage, [day]: today }
  return usage[day] ? days : newestDays(days)
}
