/** Commands of the subscription reducer and their answers. Each command carries its id and is idempotent by it. */
import type { Hidden, Usage, WindowsView } from '../token-windows.ts'
import type { ReadyTask } from './ready-tasks.ts'
import type { RefusedDay } from './refusals.ts'
import type { InactiveReason, Lease, Subscription } from './subscription.ts'

/** Facts about the API key of a creating command: id, cap, and the version at which they were read. */
export type KeyFacts = {
  keyId: string
  /** Weekly tokens for Coding, micro-units per period for Media; null without a cap. */
  keyCap: number | null
  /** The `keysVersion` at which the key was read; if it is not the record's, the answer is `stale`. */
  keysVersion: number
}

export type Stale = { outcome: 'stale'; keysVersion: number }

/**
 * Runs a creating command with the caller's subscription and key facts. On `stale`, the key is read again and the command repeated.
 * Throws the failure of the access table when the key is no longer valid.
 */
export type Creating = <A extends { outcome: string }>(
  run: (subscription: string, facts: KeyFacts) => Promise<A>,
) => Promise<Exclude<A, Stale>>

/** The same at once; null where `run` cannot answer at once, or the key must be read again. */
export type CreatingNow = <A extends { outcome: string }>(
  run: (subscription: string, facts: KeyFacts) => A | null,
) => Exclude<A, Stale> | null

type Inactive = { outcome: 'inactive'; reason: InactiveReason }
/** Tasks that may be claimed after the change; absent without one. */
type Ready = { ready?: ReadyTask[] }
type RateExceeded = { outcome: 'rate'; retryAfterMs: number }

/** Each command with its input (`in`) and its answers (`out`). */
export type Commands = {
  applyPlan: {
    in: Pick<Subscription, 'product' | 'terms' | 'state' | 'activeFrom' | 'activeUntil' | 'verdict'> & {
      plan: NonNullable<Subscription['plan']>
    }
    out: { outcome: 'applied' } | { outcome: 'older' } | { outcome: 'product_changed' }
  }
  removePlan: { in: { uid: string }; out: { outcome: 'removed' | 'already' } }
  keysChanged: { in: object; out: { outcome: 'changed'; keysVersion: number } | { outcome: 'none' } }
  /** Changes nothing: the store heals a record whose time lies ahead of its clock with every command. */
  heal: { in: object; out: { outcome: 'healed' } }

  admit: {
    in: KeyFacts & {
      id: string
      instance: string
      promptBytes: number
      /** The client's limit of output tokens; null without one. */
      maxOutputTokens: number | null
      /** The estimate, where the request was admitted by a lease. */
      tokens?: number
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
          /** As learned, for estimates of answers that are cut off. */
          hidden: Hidden
          windows: WindowsView
        }
      | { outcome: 'weekly_full' | 'session_full' | 'key_full' | 'concurrency'; windows: WindowsView }
      | ({ outcome: 'reserved'; windows: WindowsView } & Shortage)
  }
  extend: { in: { id: string; tokens: number }; out: { outcome: 'extended'; reserved: number } | { outcome: 'gone' } }
  settle: {
    /** `seen`: the output tokens that were metered beside a reported usage; absent when that is unknown. */
    in: { id: string; usage: Usage | null; estimated: boolean; seen?: number }
    out: { outcome: 'settled'; charged: number } | { outcome: 'already' }
  }
  expire: { in: { instance: string }; out: { outcome: 'settled'; count: number } | { outcome: 'already' } }

  /** Replaces the lease of a gateway by one of at most what is `wanted`, which is nothing where it gives it back. */
  lease: { in: { instance: string; wanted: WantedLease; forMs: number }; out: { outcome: 'leased'; lease: Lease } | { outcome: 'none' } }

  /** Adds refused requests to the day, by reason and by key; `id` is that of the count. `none`: the plan has no coding account. */
  countRefusals: {
    in: { id: string; reasons: RefusedDay; keys: Record<string, number> }
    out: { outcome: 'counted' | 'already' | 'none' }
  }

  /** `record`: the record including the hold, if one was taken. */
  hold: {
    in: KeyFacts & { task: string; kind: string; amount: number }
    out:
      | Stale
      | Inactive
      | (RateExceeded & { record: Subscription })
      | { outcome: 'held'; record: Subscription }
      | { outcome: 'already'; record: Subscription }
      | { outcome: 'insufficient' | 'key_full'; available: number }
      | { outcome: 'queue_full' }
  }
  claim: { in: { claim: string; kinds: string[] }; out: { outcome: 'claimed'; task: string; epoch: number } | { outcome: 'none' } }
  /** `served` false: the claimed task did not run, and the subscription regains its earlier place in the fair order. */
  requeue: { in: { task: string; epoch: number; readyAt: number; served: boolean }; out: { outcome: 'waiting' | 'none' } & Ready }
  /**
   * `actual` null: nothing was made, the whole hold is returned. `epoch`: the claim of the run, which may wait again or have been claimed once more since; a hold that
   * this is no claim of was taken by a late request after the task's own hold was closed, and is returned as well. `held`: what it released; `burned`: what of that it charged.
   */
  close: {
    in: { task: string; actual: number | null; epoch?: number }
    out: { outcome: 'closed' | 'none'; available: number; held: number; burned: number } & Ready
  }
  /** Raises the hold of a running task to `amount`, or leaves one that is that large. `none`: the hold is not of that claim, or of an ended period. */
  extendHold: {
    in: { task: string; epoch: number; amount: number; keyCap: number | null }
    out: Inactive | { outcome: 'extended'; added: number } | { outcome: 'insufficient' | 'key_full' | 'none' }
  }
  archived: { in: { n: number }; out: { outcome: 'archived' | 'none' } }
}

/** Keys with a cap come with it. */
export type WantedLease = { tokens: number; requests: number; keys: Record<string, { tokens: number; cap: number }> }

/** Other reservations leave fewer tokens than a request `needs`: of a window, or of its key's cap, which goes first. */
export type Shortage = { of: 'window' | 'key'; needs: number; left: number }

export type CommandName = keyof Commands
export type Command = { [N in CommandName]: { op: N } & Commands[N]['in'] }[CommandName]
export type Answer<N extends CommandName> = Commands[N]['out']
