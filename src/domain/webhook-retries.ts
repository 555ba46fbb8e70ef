/** Retries of webhooks (section 6.4): when the next attempt is due, and which answers are a delivery. Pure. */

/** The largest lateness of an attempt, as a share of its delay (`docs/webhooks.md`). */
const LATENESS = 0.05
/** Poll interval of dispatchers: any running one makes a due attempt within this time. */
export const LOOK_MS = 1_000

/**
 * When the attempt after a failed one is due (sections 6.4 and 8): the delay counts from the end of the attempt that failed; `jitter`
 * (0 to 1, random) makes it later, never earlier; jitter and poll interval together are at most 5 % of
 * any delay of 20 s and more. `attempt` 0 gives the first attempt, which has no jitter.
 *
 * @param from `attempt`: number of the attempt that failed, from 1. `endedAtMs`: when it ended (for 0: when the event happened).
 *   `delaysMs`: the delay before each attempt; their number is the number of attempts.
 * @returns the time, epoch milliseconds; or `failed` when that attempt was the last.
 */
export function nextAttempt(from: {
  attempt: number
  endedAtMs: number
  delaysMs: readonly number[]
  jitter: number
}): { outcome: 'due'; atMs: number } | { outcome: 'failed' } {
  const delayMs = from.delaysMs[from.attempt]
  if (delayMs === undefined) return { outcome: 'failed' }
  const mostMs = from.attempt === 0 ? 0 : Math.max(0, delayMs * LATENESS - LOOK_MS)
  return { outcome: 'due', atMs: from.endedAtMs + delayMs + Math.floor(mostMs * from.jitter) }
}

/** How a request to a receiver ended; the egress guard's replies have this shape. */
export type Exchange =
  | { outcome: 'answered'; status: number; body: Uint8Array }
  | { outcome: 'refused'; reason: string }
  | { outcome: 'failed'; reason: string; status: number | null }

export type Verdict = {
  outcome: 'delivered' | 'failed'
  statusCode: number | null
  /** Null if it was delivered; else `redirect`, `status`, or the reason why there was no answer. */
  error: string | null
  /** The beginning of the receiver's answer, for the delivery log; null without one. */
  responsePrefix: string | null
}

const PREFIX_CHARACTERS = 200

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300
}

/**
 * Classifies an attempt (section 6.4): any 2xx is delivered, also one whose body did not end, since the status says that the receiver has the event; everything else, redirects
 * included, is a failure. Returns what the delivery log keeps.
 */
export function decide(exchange: Exchange): Verdict {
  if (exchange.outcome === 'refused') return { outcome: 'failed', statusCode: null, error: exchange.reason, responsePrefix: null }
  if (exchange.outcome === 'failed' && exchange.status !== null && isSuccess(exchange.status))
    return { outcome: 'delivered', statusCode: exchange.status, error: null, responsePrefix: null }
  if (exchange.outcome === 'failed') return { outcome: 'failed', statusCode: exchange.status, error: exchange.reason, responsePrefix: null }
  const { status } = exchange
  const facts = { statusCode: status, responsePrefix: prefixOf(exchange.body) }
  if (isSuccess(status)) return { outcome: 'delivered', error: null, ...facts }
  return { outcome: 'failed', error: status >= 300 && status < 400 ? 'redirect' : 'status', ...facts }
}

/** The answer is untrusted and shown in logs: a short prefix without control characters. */
function prefixOf(body: Uint8Array): string {
  const text = new TextDecoder().decode(body.subarray(0, PREFIX_CHARACTERS * 4))
  return [...text].slice(0, PREFIX_CHARACTERS).join('').replace(/\p{C}/gu, ' ')
}
