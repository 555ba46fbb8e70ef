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
/**
 * Bounds of prompt tokens per 1,000 bytes. Measured with o200k and cl100k: prose 240, code 250 (200 with deep indentation), JSON 400 to 450, Chinese,
 * Japanese and Korean 260 to 430, base64 680 to 720, rare scripts 940; only runs of one character are below (`a` 125, spaces 9).
 */
const RATIO = { min: 125, max: 1000 }
/** The bound of output tokens billed for 1,000 that were seen. */
const OUTPUT_RATIO_MAX = 64_000
/** Up to so many billed for 1,000 seen, tokenizers differ; above, tokens of reasoning are not shown. */
const ALL_SHOWN = 1500
/** Requests at which the sums of outputs are halved, so that old ones fade. */
const OUTPUTS_MAX = 1000

export const emptyLearned = { outputs: Array<number>(BUCKETS).fill(0), ratio: RATIO_BEFORE_LEARNED }

/** The smallest power of two above at least 95 % of the sampled outputs (tokens); 4,096 until there are 20 samples. */
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

const within = (value: number, { min, max }: { min: number; max: number }) => Math.min(max, Math.max(min, value))

/** The learned prompt tokens per 1,000 bytes. */
export function promptRatio({ ratio }: Pick<CodingAccount, 'ratio'>): number {
  return within(ratio, RATIO)
}

/** What the plan's answers with a reported usage cost beyond what was seen of them, for answers that are cut off. */
export type Hidden = {
  /** Output tokens billed for 1,000 that were seen; at least 1,000. */
  outputRatio: number
  /** Output tokens that a request was billed and did not show, such as those of reasoning before its text. */
  hiddenTokens: number
}

/** As learned; without any such answer all output is taken for shown. */
export function hiddenOutput({ shown }: Pick<CodingAccount, 'shown'>): Hidden {
  const ratio = shown && shown.seen > 0 ? (shown.billed * 1000) / shown.seen : 1000
  const outputRatio = within(Math.round(ratio), { min: 1000, max: OUTPUT_RATIO_MAX })
  return { outputRatio, hiddenTokens: shown && ratio > ALL_SHOWN ? Math.ceil((shown.billed - shown.seen) / shown.requests) : 0 }
}

/**
 * Learns from one answered request. `seen`: the output tokens that were metered, 0 when that is unknown. Halves all counts at 1,000 samples, so that old
 * samples fade. What is hidden is learned by sums: who wants to lower it pays for as many tokens.
 */
export function learn(
  account: Pick<CodingAccount, 'outputs' | 'ratio' | 'shown'>,
  usage: Usage,
  promptBytes: number,
  seen: number,
): Pick<CodingAccount, 'outputs' | 'ratio' | 'shown'> {
  const bucket = Math.min(BUCKETS - 1, Math.floor(Math.log2(Math.max(1, usage.output))))
  const total = account.outputs.reduce((sum, count) => sum + count, 0)
  const outputs = account.outputs.map((count, i) => (total >= 1000 ? Math.floor(count / 2) : count) + (i === bucket ? 1 : 0))
  const shown = seen === 0 ? account.shown : addedTo(account.shown, seen, usage.output)
  const ratio =
    promptBytes === 0 ? account.ratio : Math.round((promptRatio(account) * 15 + within((usage.input * 1000) / promptBytes, RATIO)) / 16)
  return { outputs, ratio, ...(shown ? { shown } : {}) }
}

function addedTo(shown: CodingAccount['shown'], seen: number, billed: number): NonNullable<CodingAccount['shown']> {
  const sums = { requests: (shown?.requests ?? 0) + 1, seen: (shown?.seen ?? 0) + seen, billed: (shown?.billed ?? 0) + billed }
  if (sums.requests < OUTPUTS_MAX) return sums
  return { requests: Math.ceil(sums.requests / 2), seen: Math.ceil(sums.seen / 2), billed: Math.ceil(sums.billed / 2) }
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
export function windowsOf(
  rolled: Pick<CodingAccount, 'session' | 'weekly'>,
  terms: CodingTerms,
  reserved: Pick<Reserved, 'session' | 'weekly'>,
): WindowsView {
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
