/** Token window headers of every coding answer: OpenAI's `x-ratelimit-*-tokens`, and `x-codex-*`, which Codex shows to its user. */
import type { WindowsView, WindowView } from '../../src/domain/token-windows.ts'

/**
 * Both windows at `now` (epoch ms) as header name → value. `x-ratelimit-*` describes the window with fewer tokens remaining, `x-codex-primary-*` the session,
 * `x-codex-secondary-*` the week. A window that is not open has no reset header.
 */
export function windowHeaders(windows: WindowsView, now: number): Record<string, string> {
  const tight = windows.weekly.remaining < windows.session.remaining ? windows.weekly : windows.session
  return {
    'x-ratelimit-limit-tokens': String(tight.limit),
    'x-ratelimit-remaining-tokens': String(tight.remaining),
    'x-ratelimit-reset-tokens': duration(tight.resetsAt === null ? 0 : tight.resetsAt - now),
    ...codexWindow('primary', windows.session),
    ...codexWindow('secondary', windows.weekly),
  }
}

function codexWindow(name: 'primary' | 'secondary', window: WindowView): Record<string, string> {
  const percent = window.limit === 0 ? 100 : Math.min(100, (window.used / window.limit) * 100)
  return {
    [`x-codex-${name}-used-percent`]: percent.toFixed(1),
    [`x-codex-${name}-window-minutes`]: String(Math.round(window.durationMs / 60_000)),
    ...(window.resetsAt === null ? {} : { [`x-codex-${name}-reset-at`]: String(Math.ceil(window.resetsAt / 1000)) }),
  }
}

/** A duration in OpenAI's format: `6h2m1s`. */
function duration(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000))
  const hours = Math.floor(seconds / 3600)
  const minutes = Math.floor((seconds % 3600) / 60)
  return `${hours ? `${hours}h` : ''}${hours || minutes ? `${minutes}m` : ''}${seconds % 60}s`
}
