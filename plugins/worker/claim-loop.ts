/**
 * Claim loop of a worker. Where messages name no more subscriptions than slots are free, it claims there. Otherwise, and when it was full, it queries the store for the
 * subscriptions that are due, which is fair across tenants.
 */
import { singleFlight } from '../../src/concurrency/single-flight.ts'
import type { Message } from '../../src/domain/broker-messages.ts'
import { claimDue, claimNamed, type Claimed, type ClaimOutcome, type ClaimRequest } from '../../src/tasks/claim-tasks.ts'
import type { ClaimsInProgress } from '../../src/tasks/claims-in-progress.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { openPendingMessages, type PendingMessage } from './pending-messages.ts'
import type { Slots } from './worker-slots.ts'

/** After a claim that the store did not answer. */
const RETRY_MS = 1_000
/**
 * A worker that has received so many messages of a kind, and decided none of them, receives no more. More than a burst leaves behind: at each pause
 * the library drops what it has fetched and sleeps for its longest wait, and a new message would wait behind many such.
 */
const PENDING_MAX = 5000

export type ClaimLoopOptions = {
  tasks: TaskContext
  slots: Pick<Slots, 'isFull' | 'hasRoom' | 'claimable' | 'room'>
  claims: ClaimsInProgress
  start: ClaimRequest['start']
  leaseMs: number
  patience: () => Promise<unknown>
  /** Runs `then` after `ms`, unless the process stops. */
  later(ms: number, then: () => void): void
  isStopping: () => boolean
  counted(by: 'message' | 'query', outcome: ClaimOutcome): void
}

export type ClaimLoop = {
  /** Resolves once a claim was decided for the message: then its offset may be committed. */
  received(message: Message): Promise<void>
  /** Fills the free slots with what is due in the store, whether or not messages name it. */
  search(): void
  /** Whether the loop takes further messages of a kind. */
  takes(kind: string): boolean
  /** Resolves when no pass is running. */
  done(): Promise<void>
}

export function openClaimLoop({ tasks, slots, claims, start, leaseMs, patience, later, isStopping, counted }: ClaimLoopOptions): ClaimLoop {
  const { clock, log } = tasks
  const pending = openPendingMessages()
  let isSearchDue = false

  const loop = singleFlight(pass, (err) => {
    log.warn({ event: 'task_claim_failed', err }, 'claiming tasks failed, retrying')
    later(RETRY_MS, search)
  })

  function search(): void {
    isSearchDue = true
    void loop()
  }

  async function pass(): Promise<void> {
    while (!slots.isFull() && !isStopping()) {
      // Each claim in progress may need a slot.
      const limit = slots.room() - claims.count()
      const kinds = slots.claimable()
      const named = nameable(kinds)
      if (limit <= 0 || (!isSearchDue && named.size === 0)) return
      const request = { kinds, limit, leaseMs, start, claims, patience, late: search }
      const { retryAt, isUnavailable } = await (isSearchDue || named.size > limit ? query(request) : claimWhere(named, request))
      if (retryAt !== null) later(Math.max(1, retryAt - clock()), search)
      if (isUnavailable) return later(RETRY_MS, search)
    }
  }

  /** The pending messages of these kinds by subscription, without those that have a claim in progress. A busy record is left to the sweep that publishes again. */
  function nameable(kinds: readonly string[]): Map<string, PendingMessage[]> {
    const named = pending.bySubscription(kinds)
    for (const [subscription, messages] of named) {
      if (claims.isBusy(subscription, clock())) pending.decide(messages)
      if (claims.isBusy(subscription, clock()) || claims.has(subscription)) named.delete(subscription)
    }
    return named
  }

  async function claimWhere(named: Map<string, PendingMessage[]>, request: ClaimRequest): Promise<Claimed> {
    const decided = (subscription: string, outcome: ClaimOutcome): void => {
      counted('message', outcome)
      const messages = named.get(subscription) ?? []
      // A claim that started a task answers one message; one that found none answers all that came before it.
      if (outcome !== 'unknown') pending.decide(messages.splice(0, outcome === 'started' || outcome === 'returned' ? 1 : messages.length))
    }
    return claimNamed(
      tasks,
      { ...request, decided },
      new Map([...named].map(([subscription, messages]) => [subscription, messages.length])),
    )
  }

  async function query(request: ClaimRequest): Promise<Claimed> {
    isSearchDue = false
    const before = [...pending.bySubscription(request.kinds).values()].flat()
    const claimed = await claimDue(tasks, { ...request, decided: (_, outcome) => counted('query', outcome) })
    if (claimed.started > 0) isSearchDue = true
    // A slow claim may still start a task of its plan.
    else if (!claimed.isUnavailable) pending.decide(before.filter(({ message }) => !claims.has(message.subscription)))
    return claimed
  }

  return {
    received(message) {
      if (message.type !== 'task.ready') return Promise.resolve()
      const decided = pending.add(message)
      void loop()
      return decided
    },
    search,
    takes: (kind) => !slots.isFull() && slots.hasRoom(kind) && pending.count(kind) < PENDING_MAX,
    done: loop.done,
  }
}
