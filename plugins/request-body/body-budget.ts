/**
 * Memory budget of request bodies: what is held counts, not what is announced, and each tenant has a share of what is free. The share is the
 * dynamic threshold of shared-memory switches (Choudhury and Hahne, 1998): a tenant may hold as much as is left to all, so that one alone
 * gets half of the budget, two a third each, and a tenant that comes later always finds some.
 */
import { openCounts } from '../../src/domain/counts-by-name.ts'
import { overLimit, type Failure } from '../../src/domain/errors.ts'

/** The memory of one request. */
export type BodyShare = {
  /**
   * Counts bytes that are held from now on, or no longer (below zero). Throws `server_overloaded`, and counts nothing then: when they do not fit,
   * and after `free`, so that work for a client that has left ends.
   */
  take(bytes: number): void
  /** Whether so many bytes could be taken now. */
  fits(bytes: number): boolean
  /** Gives back all that was taken. May be called twice. */
  free(): void
}

/** What a request with a body counts in any case: its connection, headers and objects. */
export const REQUEST_BYTES = 4 * 1024

/** Of a request without a body. */
export const NO_SHARE: BodyShare = { take: () => {}, fits: () => true, free: () => {} }

export type BodyBudget = {
  /** Opens the share of one request of a tenant. */
  share(tenant: string): BodyShare
  /** Bytes that are held now. */
  held(): number
}

/** Opens the budget of a process. */
export function openBodyBudget(budgetBytes: number): BodyBudget {
  let held = 0
  const heldByTenant = openCounts()

  function share(tenant: string): BodyShare {
    let ours = 0
    let isFreed = false
    const change = (bytes: number) => {
      held += bytes
      ours += bytes
      heldByTenant.add(tenant, bytes)
    }
    const fits = (bytes: number) => heldByTenant.of(tenant) + bytes <= budgetBytes - (held + bytes)
    return {
      fits,
      take(bytes) {
        if (isFreed && bytes < 0) return
        if (isFreed || (bytes > 0 && !fits(bytes))) throw overloaded()
        change(bytes)
      },
      free() {
        change(-ours)
        isFreed = true
      },
    }
  }

  return { share, held: () => held }
}

/** The refusal of a body for which no memory is free. */
export function overloaded(): Failure {
  return overLimit('body_memory', { retryAfterSeconds: 1 })
}
