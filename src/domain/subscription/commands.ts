/** The commands of the machine and their answers. Every one carries its id and is idempotent by it. */
import type { Usage, WindowsView } from '../token-windows.ts'
import type { Terms } from '../plans.ts'
import type { Product } from '../../backends/resources/resources.ts'
import type { InactiveReason, Subscription } from './subscription.ts'

/** What a key brings along to a command that creates: who it is, its own cap, and how new our knowledge of it is. */
export type KeyFacts = {
  keyId: string
  /** Weekly tokens for Coding, micro-units per period for Media; null without a cap. */
  keyCap: number | null
  /** The `keysVersion` under which the key was read; anything else than the record's is `stale`. */
  keysVersion: number
}

export type Stale = { outcome: 'stale'; keysVersion: number }

/**
 * Runs a command that creates, with the caller's subscription and what is known of its key. Answered `stale`, the key is read anew and the command runs again.
 * Throws the failure of the access table when the key is no longer good.
 */
export type Creating = <A extends { outcome: string }>(run: (subscription: string, facts: KeyFacts) => Promise<A>) => Promise<Exclude<A, Stale>>

type Inactive = { outcome: 'inactive'; reason: InactiveReason }
type RateExceeded = { outcome: 'rate'; retryAfterMs: number }

/** Each command: `in` is what the caller gives, `out` what it is answered. */
export type Commands = {
  applyPlan: {
    in: {
      plan: { uid: string; createdAt: number; generation: number }
      product: Product
      terms: Terms
      state: 'Active' | 'Suspended' | 'Retired'
      activeFrom: number | null
      activeUntil: number | null
      verdict: string | null
    }
    out: { outcome: 'applied' } | { outcome: 'older' } | { outcome: 'product_changed' }
  }
  removePlan: { in: { uid: string }; out: { outcome: 'removed' | 'already' } }
  keysChanged: { in: object; out: { outcome: 'changed'; keysVersion: number } | { outcome: 'none' } }

  admit: {
    in: KeyFacts & {
      id: string
      instance: string
      promptBytes: number
      /** What the client asked for at most; null when it named none. */
      maxOutputTokens: number | null
    }
    out:
      | Stale
      | Inactive
      | RateExceeded
      | {
          outcome: 'admitted'
          reserved: number
          maxOutputTokens: number
          onAbort: 'Cancel' | 'Drain'
          weights: { input: number; cachedInput: number; output: number }
          /** Learned prompt tokens per 1,000 bytes, for estimates when the upstream reports no usage. */
          ratio: number
          windows: WindowsView
        }
      | { outcome: 'weekly_full' | 'session_full' | 'key_full' | 'concurrency' | 'reserved'; windows: WindowsView }
  }
  extend: { in: { id: string; tokens: number }; out: { outcome: 'extended'; reserved: number } | { outcome: 'gone' } }
  settle: {
    in: { id: string; usage: Usage | null; estimated: boolean }
    out: { outcome: 'settled'; charged: number } | { outcome: 'already' }
  }
  expire: { in: { instance: string }; out: { outcome: 'settled'; count: number } | { outcome: 'already' } }

  /** `record`: as it is with the hold. */
  hold: {
    in: KeyFacts & { task: string; kind: string; amount: number }
    out:
      | Stale
      | Inactive
      | RateExceeded
      | { outcome: 'held'; record: Subscription }
      | { outcome: 'already'; record: Subscription }
      | { outcome: 'insufficient' | 'key_full'; available: number }
      | { outcome: 'queue_full' }
  }
  claim: { in: { claim: string; kinds: string[] }; out: { outcome: 'claimed'; task: string; epoch: number } | { outcome: 'none' } }
  /** `served` false: the claim came to nothing, and the subscription has the place in line back that it had before. */
  requeue: { in: { task: string; epoch: number; readyAt: number; served: boolean }; out: { outcome: 'waiting' | 'none' } }
  /**
   * `actual` null: the task came to nothing, all of the hold goes back. `epoch`: the claim that it ran under; a hold with another epoch was taken by a request that
   * came late, when the task's own was closed already, and goes back as well.
   */
  close: { in: { task: string; actual: number | null; epoch?: number }; out: { outcome: 'closed' | 'none'; available: number } }
  archived: { in: { n: number }; out: { outcome: 'archived' | 'none' } }
}

export type CommandName = keyof Commands
export type Command = { [N in CommandName]: { op: N } & Commands[N]['in'] }[CommandName]
export type Answer<N extends CommandName> = Commands[N]['out']
