/** Token window headers of every coding answer: OpenAI's `x-ratelimit-*-tokens`, and `x-codex-*`, which Codex shows to its user. */
import type { WindowsView, WindowView } from '../../src/domain/token-windows.ts'

/**
 * Both windows at `now` (epoch ms) as header name → value. `x-ratelimit-*` describes the window with fewer tokens remaining, `x-codex-primary-*` the session,
 * `x-codex-secondary-*` the week. A window that is not open has no reset header.
 * `messages`: also those of Anthropic's Messages wire.
 */
export function windowHeaders(windows: WindowsView, now: number, messages = false): Record<string, string> {
  const { session, weekly } = windows
  const tight = weekly.remaining < session.remaining ? weekly : session
  const headers: Record<string, string> = {
    'x-ratelimit-limit-tokens': String(tight.limit),
    'x-ratelimit-remaining-tokens': String(tight.remaining),
    'x-ratelimit-reset-tokens': duration(tight.resetsAt === null ? 0 : tight.resetsAt - now),
    'x-codex-primary-used-percent': percent(session),
    'x-codex-primary-window-minutes': minutes(session),
    'x-codex-secondary-used-percent': percent(weekly),
    'x-codex-secondary-window-minutes': minutes(weekly),
  }
  if (messages) Object.assign(headers, messageHeaders(tight, now))
  if (session.resetsAt !== null) headers['x-codex-primary-reset-at'] = seconds(session.resetsAt)
  if (weekly.resetsAt !== null) headers['x-codex-secondary-reset-at'] = seconds(weekly.resetsAt)
  return headers
}

/** The same window in the headers of Anthropic's API, which its SDKs read. Its reset is a time of RFC 3339. */
function messageHeaders({ limit, remaining, resetsAt }: WindowView, now: number): Record<string, string> {
  return {
    'anthropic-ratelimit-tokens-limit': String(limit),
    'anthropic-ratelimit-tokens-remaining': String(remaining),
    'anthropic-ratelimit-tokens-reset': new Date(Math.ceil((resetsAt ?? now) / 1000) * 1000).toISOString().replace('.000Z', 'Z'),
  }
}

/** With one decimal. */
function percent({ limit, used }: WindowView): string {
  const tenths = limit === 0 ? 1000 : Math.min(1000, Math.round((used / limit) * 1000))
  return `${Math.floor(tenths / 10)}.${tenths % 10}`
}

const minutes = ({ durationMs }: WindowView): string => String(Math.round(durationMs / 60_000))
const seconds = (ms: number): string => String(Math.ceil(ms / 1000))

/** A duration in OpenAI's format: `6h2m1s`. */
function duration(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000))
  const hours = Math.floor(seconds / 3600)
  const minutes = Math.floor((seconds % 3600) / 60)
  return `${hours ? `${hours}h` : ''}${hours || minutes ? `${minutes}m` : ''}${seconds % 60}s`
}
