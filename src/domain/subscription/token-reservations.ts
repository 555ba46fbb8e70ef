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
import { inactiveReason, type CodingDay, type Reservation, type Subscription } from './subscription.ts'

type In<N extends Command['op']> = Extract<Command, { op: N }>

const NO_USAGE: CodingDay = { requests: 0, input: 0, cachedInput: 0, output: 0, charged: 0 }

/** The commands that change a coding account alone. */
export type CodingCommand = In<'admit' | 'extend' | 'settle' | 'expire'>

/** Whether it is one of these. */
export function isCoding(command: Command): command is CodingCommand {
  return command.op === 'admit' || command.op === 'settle' || command.op === 'extend' || command.op === 'expire'
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
  }
}

/** The answer for a record without a coding account. */
export function withoutAccount(record: Subscription | null, command: CodingCommand, now: number): Answer<CodingCommand['op']> {
  if (command.op === 'extend') return { outcome: 'gone' }
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

  const rate = takeOne(ledger.rate, record.terms.requestsPerMinute, now)
  if (!rate.allowed) return { outcome: 'rate', retryAfterMs: rate.retryAfterMs }
  const reserved = ledger.reserved(input.keyId)
  const tokens = grant(ledger, terms, input, reserved)
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
 * request. The published bound follows from this.
 */
function grant(
  ledger: CodingLedger,
  terms: CodingTerms,
  input: In<'admit'>,
  reserved: Reserved,
): number | { outcome: NonNullable<ReturnType<typeof fullness>> | 'concurrency' } | ({ outcome: 'reserved' } & Shortage) {
  const full = fullness(ledger, terms, input)
  if (full) return { outcome: full }
  if (reserved.count >= terms.maxConcurrentRequests) return { outcome: 'concurrency' }
  const rooms: { of: Shortage['of']; left: number; taken: number }[] = [
    { of: 'window', left: terms.sessionTokens - (ledger.session?.used ?? 0) - reserved.session, taken: reserved.session },
    { of: 'window', left: terms.weeklyTokens - ledger.weekly.used - reserved.weekly, taken: reserved.weekly },
  ]
  if (input.keyCap !== null) {
    // First: who waits for its key waits for nobody else.
    rooms.unshift({ of: 'key', left: input.keyCap - keyUsed(ledger, input.keyId) - reserved.key, taken: reserved.key })
  }
  let tokens = estimateOf(ledger, terms, input)
  for (const room of rooms) {
    if (tokens <= room.left) continue
    if (room.taken > 0) return { outcome: 'reserved', of: room.of, needs: tokens, left: room.left }
    tokens = room.left
  }
  return tokens
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
    ...(ledger.made && (before === undefined || before.isRecorded) ? { isRecorded: true } : {}),
  }
  if (before) ledger.usage[day] = today
  else ledger.usage = newestDays({ ...ledger.usage, [day]: today })
}
