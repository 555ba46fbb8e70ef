/** 429 errors of token windows and concurrency, in the form that OpenAI's SDKs and Codex handle (`docs/coding.md`, "A full window"). */
import { overLimit, type Failure } from '../../src/domain/errors.ts'
import type { WindowsView, WindowView } from '../../src/domain/token-windows.ts'

type Refusal = 'weekly_full' | 'session_full' | 'key_full' | 'concurrency' | 'reserved'

/** The failure for a request that was refused at `now` (epoch ms). */
export function usageLimitError(outcome: Refusal, windows: WindowsView, now: number): Failure {
  switch (outcome) {
    case 'concurrency':
      return overLimit('plan_concurrency', { retryAfterSeconds: 2 })
    case 'reserved':
      return overLimit('reserved_tokens', { retryAfterSeconds: 2 })
    case 'key_full':
      return limitReached('key_tokens', 'The share of this API key in the weekly token window', windows.weekly, now)
    case 'weekly_full':
      return limitReached('weekly_tokens', 'The weekly token window', windows.weekly, now)
    case 'session_full':
      return limitReached('session_tokens', 'The session token window', windows.session, now)
  }
}

/**
 * 429 with `type: usage_limit_reached`, the reset time and `x-should-retry: false`: Codex shows the reset time to its user instead of sleeping, and openai-node,
 * which ignores a `retry-after` above a minute, does not retry.
 */
function limitReached(limit: 'key_tokens' | 'weekly_tokens' | 'session_tokens', subject: string, window: WindowView, now: number): Failure {
  const resetsAt = window.resetsAt ?? now
  const seconds = Math.max(1, Math.ceil((resetsAt - now) / 1000))
  return overLimit(limit, {
    message: `${subject} is used up. It resets at ${new Date(resetsAt).toISOString()}.`,
    inside: { resets_at: Math.ceil(resetsAt / 1000), resets_in_seconds: seconds, plan_type: 'coding' },
    headers: { 'x-should-retry': 'false' },
    retryAfterSeconds: seconds,
  })
}
