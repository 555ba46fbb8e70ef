/** Token reservations: admission and settlement of coding requests in both token windows (`docs/coding.md` states the bound). */
import { takeOne } from '../rate-limit.ts'
import type { CodingTerms } from '../plans.ts'
import {
  chargeOf,
  hiddenOutput,
  learn,
  learnedOutput,
  promptRatio,
  WEEK_MS,
  windowsOf,
  type Reserved,
  type Usage,
} from '../token-windows.ts'
import type { CodingLedger } from './coding-ledger.ts'
import type { Answer, Command, Shortage } from './commands.ts'
import { dayOf, newestDays } from './days.ts'
import { renewLease } from './leases.ts'
import { inactiveReason, type CodingDay, type Reservation, type Subscription } from './subscription.ts'
import { recordedMark } from '../usage-records.ts'

type In<N extends Command['op']> = Extract<Command, { op: N }>

const NO_USAGE: CodingDay = { requests: 0, input: 0, cachedInput: 0, output: 0, charged: 0 }

/** The commands that change a coding account alone. */
export type CodingCommand = In<'admit' | 'extend' | 'settle' | 'expire' | 'lease'>

/** Whether it is one of these. */
export function isCoding(command: Command): command is CodingCommand {
  const { op } = command
  return op === 'admit' || op === 'settle' || op === 'extend' || op === 'expire' || op === 'lease'
}

/** Applies a command at `now` in place. */
export function applyToLedger(ledger: CodingLedger, command: CodingCommand, now: number): Answer<CodingCommand['op']> {
  switch (command.op) {
    case 'admit':
      return admit(ledger, command, now)
    case 'extend':
      return extend(ledger, command)
    case 'settle':
      return settle(ledger, command, now)
    case 'expire':
      return expire(ledger, command, now)
    case 'lease':
      return renewLease(ledger, command, now, (keyId) => keyUsed(ledger, keyId))
  }
}

/**
 * Applies a command of a gateway whose lease covers it, to a record in memory that may not be the current one; null where none does, and nothing is changed. When it is written it is
 * applied again by `applyToLedger`, with the `tokens` that the answer has reserved.
 */
export function applyByLease(ledger: CodingLedger, command: In<'admit' | 'settle'>, now: number): Answer<'admit' | 'settle'> | null {
  if (command.op === 'settle') {
    const reservation = ledger.reservation(command.id)
    return reservation && ledger.lease(reservation.instance, now) ? settle(ledger, command, now) : null
  }
  const lease = ledger.lease(command.instance, now)
  if (!lease || !ledger.terms || lease.requests < 1) return null
  const tokens = estimateOf(ledger, ledger.terms, command)
  if (tokens > lease.tokens || (command.keyCap !== null && tokens > (lease.keys[command.keyId] ?? 0))) return null
  const answer = admit(ledger, command, now)
  const reservation = ledger.reservation(command.id)
  if (answer.outcome !== 'admitted' || !reservation) return null
  ledger.draw(reservation)
  return answer
}

/** The answer for a record without a coding account. */
export function withoutAccount(record: Subscription | null, command: CodingCommand, now: number): Answer<CodingCommand['op']> {
  if (command.op === 'extend') return { outcome: 'gone' }
  if (command.op === 'lease') return { outcome: 'none' }
  if (command.op !== 'admit') return { outcome: 'already' }
  if (record && command.keysVersion !== record.keysVersion) return { outcome: 'stale', keysVersion: record.keysVersion }
  return { outcome: 'inactive', reason: inactiveReason(record, now) ?? 'PlanNotActive' }
}

/** Admits one request by rate, both windows, the key's cap and concurrency, and reserves its estimate. */
function admit(ledger: CodingLedger, input: In<'admit'>, now: number): Answer<'admit'> {
  const { record, terms } = ledger
  if (input.keysVersion !== record.keysVersion) return { outcome: 'stale', keysVersion: record.keysVersion }
  const reason = inactiveReason(record, now)
  if (reason || !terms) return { outcome: 'inactive', reason: reason ?? 'PlanNotActive' }
  const known = ledger.reservation(input.id)
  if (known) return admitted(ledger, terms, known, input)

  const leased = ledger.leasedBesides(input.instance, input.keyId, now)
  const rate = takeOne(ledger.rate, record.terms.requestsPerMinute, now)
  if (!rate.allowed) return { outcome: 'rate', retryAfterMs: rate.retryAfterMs }
  const reserved = ledger.reserved(input.keyId)
  const tokens = grant(ledger, terms, input, reserved, leased)
  if (typeof tokens !== 'number') return { ...tokens, windows: windowsOf(ledger, terms, reserved) }

  ledger.rate = rate.rate
  ledger.session ??= { start: now, end: now + terms.sessionMs, used: 0 }
  const { instance, keyId, promptBytes: bytes } = input
  const reservation = { instance, session: ledger.session.start, week: ledger.weekly.n, keyId, tokens, bytes, at: now }
  ledger.reserve(input.id, reservation)
  return admitted(ledger, terms, reservation, input)
}

function admitted(ledger: CodingLedger, terms: CodingTerms, reservation: Reservation, input: In<'admit'>): Answer<'admit'> {
  return {
    outcome: 'admitted',
    reserved: reservation.tokens,
    maxOutputTokens: Math.min(input.maxOutputTokens ?? terms.maxOutputTokens, terms.maxOutputTokens),
    onAbort: terms.onAbort,
    weights: terms.weights,
    ratio: promptRatio(ledger.learned),
    hidden: hiddenOutput(ledger.learned),
    windows: windowsOf(ledger, terms, ledger.reserved(input.keyId)),
  }
}

/** A window is full when *used* tokens reach its limit; reservations alone never fill it for hours. */
function fullness(ledger: CodingLedger, terms: CodingTerms, input: In<'admit'>): 'weekly_full' | 'session_full' | 'key_full' | null {
  const session = ledger.session && ledger.session.used >= terms.sessionTokens ? ledger.session : null
  if (ledger.weekly.used >= terms.weeklyTokens) {
    // When both are full, the one that resets later decides.
    return session && session.end > ledger.weekly.start + WEEK_MS ? 'session_full' : 'weekly_full'
  }
  if (session) return 'session_full'
  if (input.keyCap !== null && keyUsed(ledger, input.keyId) >= input.keyCap) return 'key_full'
  return null
}

function keyUsed(ledger: CodingLedger, keyId: string): number {
  const counter = ledger.keys[keyId]
  return counter && counter.week === ledger.weekly.n ? counter.used : 0
}

/**
 * The tokens to reserve, or why there are none: a window is full, too many requests are in flight, or their reservations leave too little
 * room. Used plus reserved never exceeds a limit here: a lone request gets what is left, since a window with room always admits one
 * request, also beside leases. The published bound follows from this.
 */
function grant(
  ledger: CodingLedger,
  terms: CodingTerms,
  input: In<'admit'>,
  reserved: Reserved,
  leased: { tokens: number; requests: number; key: number },
): number | { outcome: NonNullable<ReturnType<typeof fullness>> | 'concurrency' } | ({ outcome: 'reserved' } & Shortage) {
  const full = fullness(ledger, terms, input)
  if (full) return { outcome: full }
  if (reserved.count + leased.requests >= terms.maxConcurrentRequests) return { outcome: 'concurrency' }
  const rooms = [
    roomOf('window', terms.sessionTokens - (ledger.session?.used ?? 0), reserved.session, leased.tokens),
    roomOf('window', terms.weeklyTokens - ledger.weekly.used, reserved.weekly, leased.tokens),
  ]
  // First: who waits for its key waits for nobody else.
  if (input.keyCap !== null) rooms.unshift(roomOf('key', input.keyCap - keyUsed(ledger, input.keyId), reserved.key, leased.key))
  let tokens = input.tokens ?? estimateOf(ledger, terms, input)
  for (const room of rooms) {
    if (tokens <= room.left) continue
    if (room.taken > 0) return { outcome: 'reserved', of: room.of, needs: tokens, left: room.left }
    tokens = Math.max(1, room.left)
  }
  return tokens
}

/** `unused`: tokens that nobody has used, of which requests in flight have `taken` some, and others are `leased`. */
function roomOf(of: Shortage['of'], unused: number, taken: number, leased: number): { of: Shortage['of']; left: number; taken: number } {
  return { of, left: unused - taken - leased, taken }
}

/** The estimate: prompt bytes × the learned ratio, plus the client's output limit or else the learned output. */
function estimateOf({ learned }: CodingLedger, terms: CodingTerms, input: In<'admit'>): number {
  const output = Math.min(input.maxOutputTokens ?? learnedOutput(learned.outputs), terms.maxOutputTokens)
  const prompt = Math.ceil((input.promptBytes * promptRatio(learned)) / 1000)
  return Math.max(1, chargeOf({ input: prompt, cachedInput: 0, output }, terms.weights))
}

/** Extends the reservation of a stream that outgrew it to at least `tokens`, even past the limit. */
function extend(ledger: CodingLedger, { id, tokens }: In<'extend'>): Answer<'extend'> {
  const reservation = ledger.reservation(id)
  if (!reservation) return { outcome: 'gone' }
  if (reservation.tokens < tokens) ledger.reserve(id, { ...reservation, tokens })
  return { outcome: 'extended', reserved: Math.max(reservation.tokens, tokens) }
}

/** Charges a request once, to the windows that admitted it, and frees its reservation. Without usage nothing is charged. */
function settle(ledger: CodingLedger, { id, usage, estimated, seen = 0 }: In<'settle'>, now: number): Answer<'settle'> {
  const reservation = ledger.reservation(id)
  if (!ledger.terms || !reservation) return { outcome: 'already' }
  const charged = usage ? chargeOf(usage, ledger.terms.weights) : 0
  ledger.charge(id, reservation, charged)
  if (usage) {
    countDay(ledger, now, usage, charged)
    ledger.made?.push({ id, subscription: ledger.record.id, keyId: reservation.keyId, at: now, usage, charged, isEstimated: estimated })
  }
  if (usage && !estimated) ledger.learned = learn(ledger.learned, usage, reservation.bytes, seen)
  return { outcome: 'settled', charged }
}

/** Expires the reservations of a dead gateway: charged at their estimates, since the usage is unknown. */
function expire(ledger: CodingLedger, { instance }: In<'expire'>, now: number): Answer<'expire'> {
  const open = ledger.reservationsOf(instance)
  if (open.length === 0) return { outcome: 'already' }
  for (const [id, reservation] of open) {
    const { keyId, tokens: charged } = reservation
    ledger.charge(id, reservation, charged)
    countDay(ledger, now, { input: 0, cachedInput: 0, output: 0 }, charged)
    ledger.made?.push({ id, subscription: ledger.record.id, keyId, at: now, usage: null, charged, isEstimated: true })
  }
  return { outcome: 'settled', count: open.length }
}

/** Adds one request to its UTC day and keeps the newest days. */
function countDay(ledger: CodingLedger, now: number, tokens: Usage, charged: number): void {
  const day = dayOf(now)
  const before = ledger.usage[day]
  const { requests, input, cachedInput, output, charged: chargedBefore } = before ?? NO_USAGE
  const today: CodingDay = {
    requests: requests + 1,
    input: input + tokens.input,
    cachedInput: cachedInput + tokens.cachedInput,
    output: output + tokens.output,
    charged: chargedBefore + charged,
    ...recordedMark(ledger.made !== null, before),
  }
  if (before) ledger.usage[day] = today
  else ledger.usage = newestDays({ ...ledger.usage, [day]: today })
}
