/** Claims, retries and the end of a run. The worker owns the timers; every write is fenced by the epoch of the claim. */
import { Busy } from '../domain/errors.ts'
import { tenantOf } from '../domain/plans.ts'
import { openClaims, type ClaimsInProgress } from './claims-in-progress.ts'
import { publishReady } from './publish-ready.ts'
import { release } from './release-money-hold.ts'
import { end, settle } from './settle-and-cancel.ts'
import { QUEUED_MS, type TaskContext } from './task-context.ts'
import { FINAL, TASK_ERRORS, type Task, type TaskErrorCode, type TaskResult } from '../domain/task.ts'

/** How a run ended. `cost` is micro-units, by the price of the quote. */
export type Made =
  | { outcome: 'made'; result: TaskResult; cost: number }
  /** `retryAfterMs`: nothing was begun, and may be after so long. */
  | { outcome: 'failed'; code: TaskErrorCode; retryable: boolean; retryAfterMs?: number }
  /** The worker stops: the task goes back to the queue and no attempt is counted. */
  | { outcome: 'handed_back' }
  /** A backend was unavailable during the run. */
  | { outcome: 'unavailable' }

/** `task` is the ended task. */
export type Concluded = { outcome: 'completed' | 'failed'; task: Task } | { outcome: 'retrying' | 'handed_back' | 'lost' }

const SUBSCRIPTIONS_READ = 16
/** Concurrent claims of one subscription: one write takes them all. */
const CLAIMS_MAX = 64
/** Delay before a hold is claimed again whose task could not be started. A pending task is about to be queued: its delay grows with its age. */
const WAIT_MS = { min: 20, max: 5_000, other: 1_000 }
const YOUNG_MS = 1_000
const RETRY_MS = { first: 2_000, max: 60_000 }
/** From the first run of a task: for so long runs during which a backend was unavailable, or a provider asked to wait, cost no attempt, and lost leases of live workers do not count. */
const UNAVAILABLE_MS = 3_600_000

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
    await release(context, subscription, id, task?.estimatedCost ?? 0)
    return now
  }
  // Not at once: the head of the queue must not be claimed in a hot loop. A pending task is about to be queued, or rejected by the sweep.
  const pendingMs = now - task.createdAt
  const waitMs = task.state !== 'pending' ? WAIT_MS.other : pendingMs < YOUNG_MS ? WAIT_MS.min : Math.min(WAIT_MS.max, pendingMs)
  await context.store.change(subscription, { op: 'requeue', task: id, epoch, readyAt: now + waitMs, served: false }, now)
  return now + waitMs
}

/** Stores the outcome of a run: the end of the task, another attempt, or the task handed back. `lost`: another run has the task, or it has ended. */
export async function conclude(context: TaskContext, task: Task, made: Made): Promise<Concluded> {
  const guard = { from: ['processing'], epoch: task.epoch } as const
  if (made.outcome === 'made') {
    const ended = await end(context, task.id, guard, { outcome: 'completed', cost: made.cost, result: made.result })
    return ending(context, task, ended)
  }
  if (made.outcome === 'handed_back') return handBack(context, task)
  const now = context.clock()
  const sinceFirstMs = now - (task.startedAt ?? now)
  if (made.outcome === 'unavailable' && sinceFirstMs < UNAVAILABLE_MS) {
    // The provider's job is kept: it may have ended meanwhile, and another one would be paid for as well.
    const readyAt = now + jittered(Math.max(sinceFirstMs / 2, RETRY_MS.first), context.random())
    return requeue(context, task, readyAt, { attempts: Math.max(0, task.attempts - 1) }, 'retrying')
  }
  if (made.outcome === 'failed' && made.retryAfterMs !== undefined && sinceFirstMs + made.retryAfterMs < UNAVAILABLE_MS) {
    // The job is kept: it may be its result that the provider asked to wait for.
    const readyAt = now + made.retryAfterMs + jittered(RETRY_MS.first, context.random())
    return requeue(context, task, readyAt, { attempts: Math.max(0, task.attempts - 1) }, 'retrying')
  }
  const { code, retryable } = made.outcome === 'unavailable' ? UNAVAILABLE : made
  if (retryable && task.attempts < task.maxAttempts) {
    const readyAt = now + retryDelayMs(task.attempts, context.random())
    return requeue(context, task, readyAt, { attempts: task.attempts, job: null }, 'retrying')
  }
  const ended = await end(context, task.id, guard, { outcome: 'failed', code, message: TASK_ERRORS[code] })
  return ending(context, task, ended)
}

const UNAVAILABLE = { code: 'internal', retryable: true } as const

/** How the run's task ended. A settlement that an earlier try of this run began, with unknown outcome, is continued. */
async function ending(context: TaskContext, task: Task, ended: Task | null): Promise<Concluded> {
  const now = ended ?? (await context.store.task(task.tenant, task.id))
  const settled = now?.state === 'settling' && now.epoch === task.epoch ? await settle(context, now) : now
  if (settled?.epoch !== task.epoch || (settled.state !== 'completed' && settled.state !== 'failed')) return { outcome: 'lost' }
  return { outcome: settled.state, task: settled }
}

/** Queues a running task again at once. The run costs no attempt, and its worker is refused from then on. `lost`: the task is in another state, or of another run. */
export function handBack(context: Queueing, task: Task): Promise<Concluded> {
  return requeue(context, task, context.clock(), { attempts: Math.max(0, task.attempts - 1) }, 'handed_back')
}

type Queueing = Pick<TaskContext, 'store' | 'clock' | 'publish'>

/** `job: null`: the next run needs a job of its own; otherwise it resumes this one's. */
async function requeue(
  context: Queueing,
  task: Task,
  readyAt: number,
  facts: { attempts: number; job?: null },
  outcome: 'retrying' | 'handed_back',
): Promise<Concluded> {
  const queued = await context.store.moveTask(task.id, { from: ['processing'], epoch: task.epoch }, 'queued', {
    ...facts,
    sweepAt: readyAt + QUEUED_MS,
  })
  const now = queued ?? (await context.store.task(task.tenant, task.id))
  // Queued under this epoch: by an earlier try with unknown outcome.
  if (now?.state !== 'queued' || now.epoch !== task.epoch) return { outcome: 'lost' }
  const { ready } = await context.store.change(
    task.subscription,
    { op: 'requeue', task: task.id, epoch: task.epoch, readyAt, served: true },
    context.clock(),
  )
  publishReady(context, task.subscription, ready, { origin: task })
  return { outcome }
}

/**
 * Uncounts a lease that a live worker has lost: it was frozen, or the store was slow, so its task did not end it. An input that keeps workers from renewing for longer
 * than an hour counts again.
 */
export async function forgiveLostLease({ store, clock }: Pick<TaskContext, 'store' | 'clock'>, task: Task): Promise<void> {
  if (
    (task.state !== 'queued' && task.state !== 'processing') ||
    task.lostLeases === 0 ||
    clock() - (task.startedAt ?? 0) >= UNAVAILABLE_MS
  )
    return
  await store.moveTask(task.id, { from: [task.state], epoch: task.epoch }, task.state, { lostLeases: task.lostLeases - 1 })
}

/** Stores the id of the provider's job under the epoch of its run, so that a later run resumes it. `lost`: another run has the task, or it has ended. */
export async function rememberJob({ store }: Pick<TaskContext, 'store'>, task: Task, job: string): Promise<'remembered' | 'lost'> {
  return (await store.moveTask(task.id, { from: ['processing'], epoch: task.epoch }, 'processing', { job })) ? 'remembered' : 'lost'
}

/** The delay before the next attempt: doubling from two seconds to a minute, with jitter over its upper half by `random` (0 up to 1). */
function retryDelayMs(attempts: number, random: number): number {
  return jittered(RETRY_MS.first * 2 ** Math.max(0, attempts - 1), random)
}

function jittered(delayMs: number, random: number): number {
  const full = Math.min(RETRY_MS.max, delayMs)
  return Math.round(full / 2 + (full / 2) * random)
}
