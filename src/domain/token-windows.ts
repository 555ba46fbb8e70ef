/** Session and weekly token windows: rolling, charging, views, and learned estimates. Pure. */
import type { CodingTerms } from './plans.ts'
import type { CodingAccount, Reservation } from './subscription/subscription.ts'

export const WEEK_MS = 7 * 24 * 3600 * 1000

/** Tokens of one request as the upstream reports them; `cachedInput` is part of `input`. */
export type Usage = { input: number; cachedInput: number; output: number }

/** One window as a client sees it. `resetsAt` (epoch ms) is null while no window is open. */
export type WindowView = { limit: number; used: number; reserved: number; remaining: number; resetsAt: number | null; durationMs: number }
export type WindowsView = { session: WindowView; weekly: WindowView }

/** The charge of a request in tokens: permille weights per kind of token, rounded up once. */
export function chargeOf(usage: Usage, weights: CodingTerms['weights']): number {
  const cached = Math.min(usage.cachedInput, usage.input)
  const milli =
    BigInt(usage.input - cached) * BigInt(weights.input) +
    BigInt(cached) * BigInt(weights.cachedInput) +
    BigInt(usage.output) * BigInt(weights.output)
  return Number((milli + 999n) / 1000n)
}

const BUCKETS = 24
const FEWEST_SAMPLES = 20
const OUTPUT_BEFORE_LEARNED = 4096
const RATIO_BEFORE_LEARNED = 300

export const emptyLearned = { outputs: Array<number>(BUCKETS).fill(0), ratio: RATIO_BEFORE_LEARNED }

/** The learned p95 of output tokens; 4,096 until there are 20 samples. */
export function learnedOutput(outputs: number[]): number {
  const total = outputs.reduce((sum, count) => sum + count, 0)
  if (total < FEWEST_SAMPLES) return OUTPUT_BEFORE_LEARNED
  let seen = 0
  for (const [bucket, count] of outputs.entries()) {
    seen += count
    if (seen >= total * 0.95) return 2 ** (bucket + 1)
  }
  return 2 ** BUCKETS
}

/** Learns from one answered request. Halves all counts at 1,000 samples, so that old samples fade. */
export function learn(account: CodingAccount, usage: Usage, promptBytes: number): Pick<CodingAccount, 'outputs' | 'ratio'> {
  const bucket = Math.min(BUCKETS - 1, Math.floor(Math.log2(Math.max(1, usage.output))))
  const total = account.outputs.reduce((sum, count) => sum + count, 0)
  const outputs = account.outputs.map((count, i) => (total >= 1000 ? Math.floor(count / 2) : count) + (i === bucket ? 1 : 0))
  if (promptBytes === 0) return { outputs, ratio: account.ratio }
  const seen = Math.min(1000, Math.max(1, (usage.input * 1000) / promptBytes))
  return { outputs, ratio: Math.round((account.ratio * 15 + seen) / 16) || 1 }
}

/** Rolls the windows to `now`: drops an ended session and counters of other weeks; the weekly window is the one that contains `now`. */
export function roll(account: CodingAccount, now: number): CodingAccount {
  const session = account.session && now >= account.session.end ? null : account.session
  const weeks = Math.floor((now - account.weekly.start) / WEEK_MS)
  if (weeks <= 0) return session === account.session ? account : { ...account, session }
  const n = account.weekly.n + weeks
  return { ...account, session, weekly: { n, start: account.weekly.start + weeks * WEEK_MS, used: 0 }, keys: {} }
}

/** Open reservations: how many, and their tokens in the running session, in the running week, and in the week by one key. */
export type Reserved = { count: number; session: number; weekly: number; key: number }

/** The number of reservations, and the tokens that they reserve in the present session, in the present week, and in that week by one key. */
export function reservedIn(account: CodingAccount, keyId: string | null): Reserved {
  let [count, session, weekly, key] = [0, 0, 0, 0]
  for (const id in account.reservations) {
    const reservation = account.reservations[id] as Reservation
    count++
    if (account.session && reservation.session === account.session.start) session += reservation.tokens
    if (reservation.week === account.weekly.n) {
      weekly += reservation.tokens
      if (reservation.keyId === keyId) key += reservation.tokens
    }
  }
  return { count, session, weekly, key }
}

/** Both windows as a client sees them at `now`. */
export function viewOf(account: CodingAccount, terms: CodingTerms, now: number): WindowsView {
  const rolled = roll(account, now)
  return windowsOf(rolled, terms, reservedIn(rolled, null))
}

/** The same for windows that are rolled to now. */
export function windowsOf(rolled: CodingAccount, terms: CodingTerms, reserved: Pick<Reserved, 'session' | 'weekly'>): WindowsView {
  const view = (limit: number, used: number, held: number, resetsAt: number | null, durationMs: number): WindowView => ({
    limit,
    used,
    reserved: held,
    remaining: Math.max(0, limit - used - held),
    resetsAt,
    durationMs,
  })
  return {
    session: view(terms.sessionTokens, rolled.session?.used ?? 0, reserved.session, rolled.session?.end ?? null, terms.sessionMs),
    weekly: view(terms.weeklyTokens, rolled.weekly.used, reserved.weekly, rolled.weekly.start + WEEK_MS, WEEK_MS),
  }
}
