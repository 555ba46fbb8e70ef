/**
 * Concurrent deliveries of one tenant to one receiver: additive increase while answers are fast, multiplicative decrease otherwise, as TCP
 * does it (RFC 5681). What a process learned is in its memory; the store counts the claims of all processes (decision 0031).
 */
import { queueName, type DeliveryQueue } from '../../src/backends/store/task-store.ts'
import type { Attempted } from './delivery-attempt.ts'

export const MIN_CONCURRENCY = 4
const MAX_CONCURRENCY = 64
/** A 2xx within this time is fast. */
const FAST_MS = 1_000
/** A receiver without an answer for so long starts from the minimum again. */
const FORGET_MS = 60_000

/** Concurrent deliveries of one tenant, in all processes. */
const TENANT_MAX = 100

/**
 * What one claim may take of so many `free` slots of a process: half of them, and of one tenant no more than an eighth beside what it has. So those whose receivers hang leave slots
 * to those who come later, however many they are: a dynamic threshold, as switches share their buffers (Choudhury and Hahne, 1998).
 */
export function sharesOf(free: number): { limit: number; perTenant: number } {
  return { limit: Math.ceil(free / 2), perTenant: Math.min(TENANT_MAX, Math.max(MIN_CONCURRENCY, Math.floor(free / 8))) }
}

export type ConcurrencyLimits = {
  /** From 4 to 64. */
  of(queue: DeliveryQueue): number
  /** The limits above 4, by `queueName`. */
  above(): ReadonlyMap<string, number>
  /** One more after a fast 2xx; half after any other answer, a slow one, or none. Nothing for an attempt that was not made or cut off. */
  learn(queue: DeliveryQueue, attempted: Attempted): void
}

/** `clock`: epoch milliseconds. */
export function openConcurrencyLimits(clock: () => number): ConcurrencyLimits {
  /** Least recently learned first. A queue that is not in it has the minimum. */
  const learned = new Map<string, { limit: number; at: number }>()

  function of(queue: DeliveryQueue): number {
    const entry = learned.get(queueName(queue))
    return entry && clock() - entry.at < FORGET_MS ? entry.limit : MIN_CONCURRENCY
  }

  function forget(): void {
    for (const [name, { at }] of learned) {
      if (clock() - at < FORGET_MS) return
      learned.delete(name)
    }
  }

  return {
    of,
    above() {
      forget()
      return new Map([...learned].map(([name, { limit }]) => [name, limit]))
    },
    learn(queue, { outcome, durationMs }) {
      if (outcome === 'returned' || outcome === 'lost' || outcome === 'unsigned') return
      const before = of(queue)
      const limit = outcome === 'delivered' && durationMs < FAST_MS ? Math.min(before + 1, MAX_CONCURRENCY) : Math.floor(before / 2)
      learned.delete(queueName(queue))
      if (limit > MIN_CONCURRENCY) learned.set(queueName(queue), { limit, at: clock() })
      forget()
    },
  }
}
