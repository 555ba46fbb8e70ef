/** Claims of ready tasks. The worker owns the timers; the epoch of a claim fences every write of its run. */
import { Busy } from '../domain/errors.ts'
import { tenantOf } from '../domain/plans.ts'
import { openClaims, type ClaimsInProgress } from './claims-in-progress.ts'
import { release } from './release-money-hold.ts'
import { settle } from './run-outcome.ts'
import type { TaskContext } from './task-context.ts'
import { FINAL, type Task } from '../domain/task.ts'

const SUBSCRIPTIONS_READ = 16
/** Concurrent claims of one subscription: one write takes them all. */
const CLAIMS_MAX = 64
/** Delay before a hold is claimed again whose task could not be started. */
const WAIT_MS = 1_000

/** Which tasks to claim: up to `limit`, of these kinds and operations. */
export type ClaimRequest = {
  kinds: string[]
  limit: number
  leaseMs: number
  /** Called with each task once it is processing: its lease runs. */
  start(task: Task): void
  /** The claims of this process that are in progress. */
  claims?: ClaimsInProgress
  /** Resolves after the time that a batch of claims may take. A slower claim goes on in `claims`, and may still start a task. Without it, every claim is awaited. */
  patience?: () => Promise<unknown>
  /** Called when such a slower claim has ended. */
  late?(): void
  /** Called with the outcome of each claim, also of a slower one. */
  decided?(subscription: string, outcome: ClaimOutcome): void
}

/** `returned`: the claimed task could not be started. `busy`: its record has too many conflicts. `unknown`: the store did not answer. */
export type ClaimOutcome = 'started' | 'returned' | 'none' | 'busy' | 'unknown'

/** `started`: how many. `retryAt`: when a task is ready again that was claimed and could not be started. `isUnavailable`: the store did not answer a claim. */
export type Claimed = { started: number; retryAt: number | null; isUnavailable: boolean }

/**
 * Claims tasks until some were started or none is ready. The store lists the subscriptions, longest unserved first; the record of each chooses its oldest task. The claims of a
 * batch run concurrently, so that they share writes. A subscription whose record is busy holds up no other one. Ends early, with a log line, when the store is unavailable; rejects
 * when the subscriptions cannot be listed.
 */
export async function claimDue(context: TaskContext, request: ClaimRequest): Promise<Claimed> {
  const claims = request.claims ?? openClaims()
  const passedOver = claims.passedOver(context.clock())
  const listed = await context.store.subscriptionsDue(request.kinds, context.clock(), SUBSCRIPTIONS_READ + passedOver.size)
  const due = listed.filter((subscription) => !passedOver.has(subscription))
  const batch = openBatch(context, { ...request, claims })
  while (due.length > 0 && batch.claimed.started === 0 && batch.room() > 0 && !batch.claimed.isUnavailable) {
    const subscriptions = due.splice(0, batch.room())
    const ofEach = Math.floor(batch.room() / subscriptions.length)
    await batch.claim(new Map(subscriptions.map((subscription) => [subscription, ofEach])))
  }
  return batch.end()
}

/** Claims at these subscriptions, at most as many tasks of each as `named` says, and without a query for others. There are at most `limit` of them. */
export async function claimNamed(context: TaskContext, request: ClaimRequest, named: ReadonlyMap<string, number>): Promise<Claimed> {
  const batch = openBatch(context, request)
  const ofEach = Math.floor(request.limit / named.size)
  await batch.claim(new Map([...named].map(([subscription, count]) => [subscription, Math.min(count, ofEach)])))
  return batch.end()
}

/** The claims of one call. `claim` takes the number of claims by subscription. */
function openBatch(context: TaskContext, request: ClaimRequest) {
  const { limit, patience, claims = openClaims() } = request
  const claimed: Claimed = { started: 0, retryAt: null, isUnavailable: false }
  let inProgress = 0
  let isLate = false

  async function claim(subscription: string): Promise<void> {
    inProgress++
    let outcome: ClaimOutcome = 'unknown'
    try {
      outcome = await claimOne(context, subscription, request, claimed)
    } catch (err) {
      outcome = err instanceof Busy ? 'busy' : 'unknown'
      if (err instanceof Busy) claims.busy(subscription, context.clock())
      else claimed.isUnavailable = true
      context.log.warn({ event: 'claim_failed', err, subscription }, 'claim failed, retrying')
    } finally {
      inProgress--
      request.decided?.(subscription, outcome)
    }
  }

  const track = (subscription: string): Promise<void> =>
    claims.track(subscription, claim(subscription)).then(() => (isLate ? request.late?.() : undefined))

  return {
    claimed,
    room: () => limit - inProgress,
    async claim(counts: ReadonlyMap<string, number>): Promise<void> {
      const all = Promise.all(
        [...counts].flatMap(([subscription, count]) => Array.from({ length: Math.min(count, CLAIMS_MAX) }, () => track(subscription))),
      )
      await (patience ? Promise.race([all, patience()]) : all)
    },
    end(): Claimed {
      isLate = true
      return claimed
    },
  }
}

/** Claims one task of the subscription and adds the outcome to `claimed`. */
async function claimOne(
  context: TaskContext,
  subscription: string,
  { kinds, leaseMs, start }: ClaimRequest,
  claimed: Claimed,
): Promise<ClaimOutcome> {
  const claim = await context.store.change(subscription, { op: 'claim', claim: context.uuid(), kinds }, context.clock())
  if (claim.outcome === 'none') return 'none'
  const task = await begin(context, subscription, claim.task, claim.epoch, leaseMs)
  if (typeof task === 'number') {
    claimed.retryAt = Math.min(claimed.retryAt ?? task, task)
    return 'returned'
  }
  claimed.started++
  start(task)
  return 'started'
}

/** Starts a claimed task: `queued` → `processing` under the claim's epoch, if that is above the task's own. Otherwise returns when to claim again. */
async function begin(context: TaskContext, subscription: string, id: string, epoch: number, leaseMs: number): Promise<Task | number> {
  const { store, clock } = context
  const tenant = tenantOf(subscription)
  const task = await store.task(tenant, id)
  if (task?.state === 'queued') {
    const now = clock()
    const facts = { epoch, attempts: task.attempts + 1, startedAt: task.startedAt ?? now, sweepAt: now + leaseMs }
    const begun = await store.moveTask(id, { from: ['queued'], epochBelow: epoch }, 'processing', facts)
    if (begun) return begun
  }
  return returnClaim(context, subscription, id, epoch, task)
}

/** Returns a claim whose task could not be started; the state of the task decides about the hold. Returns when to claim again. */
async function returnClaim(context: TaskContext, subscription: string, id: string, epoch: number, task: Task | null): Promise<number> {
  const now = context.clock()
  if (task?.state === 'settling') {
    await settle(context, task)
    return now
  }
  if (!task || FINAL.includes(task.state)) {
    await release(context, subscription, id)
    return now
  }
  // Not at once: the head of the queue must not be claimed in a hot loop. A pending task, which earlier releases make, is about to be queued, or rejected by the sweep.
  await context.store.change(subscription, { op: 'requeue', task: id, epoch, readyAt: now + WAIT_MS, served: false }, now)
  return now + WAIT_MS
}
