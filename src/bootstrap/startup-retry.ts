/** Startup retry: opens a backend that may not be up yet, with back-off, one log line per attempt, and the reason for /readyz. */
import { setTimeout as pause } from 'node:timers/promises'
import type { FastifyBaseLogger } from 'fastify'
import { withoutPassword } from '../config/config.ts'
import { Unavailable } from '../domain/errors.ts'

/** Opens a backend by its name, for as long as that takes; `at` is its address. */
export type Opener = <T>(name: string, open: () => Promise<T>, at?: string) => Promise<T>

export type StartupRetry = {
  open: Opener
  /** The backend that is being opened and why it is not open yet, for the operator; null when there is none. */
  pending(): { name: string; detail: string } | null
}

const PAUSE_MS_MIN = 250
const PAUSE_MS_MAX = 5_000

/** Retries on `Unavailable` until `stopping` is aborted, then throws it. Any other error is thrown at once. */
export function openStartupRetry(log: FastifyBaseLogger, stopping: AbortSignal): StartupRetry {
  let current: { name: string; detail: string } | null = null

  async function open<T>(name: string, attempt: () => Promise<T>, at = ''): Promise<T> {
    current = { name, detail: 'opening' }
    for (let pauseMs = PAUSE_MS_MIN; ; pauseMs = Math.min(pauseMs * 2, PAUSE_MS_MAX)) {
      try {
        const opened = await attempt()
        if (pauseMs > PAUSE_MS_MIN) log.info({ event: 'backend_available', backend: name }, 'backend available')
        current = null
        return opened
      } catch (error) {
        if (!(error instanceof Unavailable) || stopping.aborted) throw error
        const reason = withoutPassword(error.cause instanceof Error ? error.cause.message : error.message)
        current = { name, detail: `waiting: ${reason}` }
        log.warn(
          { event: 'backend_unavailable', backend: name, address: withoutPassword(at), reason, retryInMs: pauseMs },
          'backend unavailable, retrying',
        )
        await pause(pauseMs, undefined, { signal: stopping }).catch(() => {})
        if (stopping.aborted) throw error
      }
    }
  }

  return { open, pending: () => current }
}
