/** Opening what may not be there yet: again and again with back-off, one line in the log each time, and what is waited for as an answer to /readyz. */
import { setTimeout as pause } from 'node:timers/promises'
import type { FastifyBaseLogger } from 'fastify'
import { withoutPassword } from '../config/config.ts'

/** Opens one thing by its name, however long that takes; `at` is its address. */
export type Opener = <T>(name: string, open: () => Promise<T>, at?: string) => Promise<T>

export type Waiting = {
  open: Opener
  /** What is waited for now, and why, in words for the operator; null when nothing is. */
  pending(): { name: string; detail: string } | null
}

const FIRST_PAUSE_MS = 250
const LONGEST_PAUSE_MS = 5_000

/** `stopping` ends the waiting: what was waited for is thrown then. What is wrong for good is thrown at once. */
export function openStartupRetry(log: FastifyBaseLogger, stopping: AbortSignal): Waiting {
  let waited: { name: string; detail: string } | null = null

  async function open<T>(name: string, attempt: () => Promise<T>, at = ''): Promise<T> {
    const where = at === '' ? name : `${name} at ${withoutPassword(at)}`
    waited = { name, detail: 'it is being opened' }
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      try {
        const opened = await attempt()
        if (pauseMs > FIRST_PAUSE_MS) log.info({ backend: name }, `the ${where} is there`)
        waited = null
        return opened
      } catch (error) {
        if (!(error instanceof Error) || error.name !== 'Unavailable' || stopping.aborted) throw error
        const why = withoutPassword(error.cause instanceof Error ? error.cause.message : error.message)
        waited = { name, detail: `waiting: ${why}` }
        log.warn({ backend: name, why, retryInMs: pauseMs }, `waiting for the ${where}`)
        // A stop need not wait: the next attempt throws what it finds.
        await pause(pauseMs, undefined, { signal: stopping }).catch(() => {})
        if (stopping.aborted) throw error
      }
    }
  }

  return { open, pending: () => waited }
}
