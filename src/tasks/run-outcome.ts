/**
 * What becomes of a run: its task ends, is attempted again, or is handed back. An end claims the state first (`settling`), then closes the hold, then makes the task
 * final, with its events in the same write. Every write of a run is fenced by the epoch of its claim.
 */
import { Failure, overLimit } from '../domain/errors.ts'
import { envelope, refundedData } from '../domain/webhooks.ts'
import {
  TASK_ERRORS,
  type OutboxEvent,
  type Task,
  type TaskErrorCode,
  type TaskErrorDetails,
  type TaskGuard,
  type TaskOutcome,
  type TaskResult,
} from '../domain/task.ts'
import { finalEventData } from './final-event-data.ts'
import { relay } from './outbox.ts'
import { publishReady } from './publish-ready.ts'
import { isUnheld } from './reject-task.ts'
import { QUEUED_MS, SETTLING_MS, type TaskContext } from './task-context.ts'
import { removeInlineSources } from './inline-sources.ts'

/** How a run ended. `cost` is micro-units, by the price of the quote. */
export type RunOutcome =
  | { outcome: 'made'; result: TaskResult; cost: number }
  /** `retryAfterMs`: nothing was begun, and may be after so long. `keepsJob`: only the result of its job is lacking. */
  | { outcome: 'failed'; code: TaskErrorCode; retryable: boolean; retryAfterMs?: number; keepsJob?: true; details?: TaskErrorDetails }
  /** The worker stops: the task goes back to the queue and no attempt is counted. */
  | { outcome: 'handed_back' }
  /** A backend was unavailable during the run. */
  | { outcome: 'unavailable' }

type FailedRun = Extract<RunOutcome, { outcome: 'failed' }>

/** `task` is the ended task. */
export type Concluded = { outcome: 'completed' | 'failed'; task: Task } | { outcome: 'retrying' | 'handed_back' | 'lost' }

/** The pause before another attempt: doubled for each, with jitter over its upper half. */
const RETRY_MS = { first: 2_000, max: 60_000 }
/** From the first run of a task: for so long runs during which a backend was unavailable, or a provider asked to wait, cost no attempt, and lost leases of live workers do not count. */
const UNAVAILABLE_MS = 3_600_000
const UNAVAILABLE: FailedRun = { outcome: 'failed', code: 'internal', retryable: true }

/** Stores the outcome of a run: the end of the task, another attempt, or the task handed back. `lost`: another run has the task, or it has ended. */
export async function conclude(context: TaskContext, task: Task, made: RunOutcome): Promise<Concluded> {
  const guard = { from: ['processing'], epoch: task.epoch } as const
  if (made.outcome === 'made') {
    const ended = await end(context, task.id, guard, { outcome: 'completed', cost: made.cost, result: made.result })
    return ending(context, task, ended)
  }
  if (made.outcome === 'handed_back') return handBack(context, task)
  const now = context.clock()
  const sinceFirstMs = now - (task.startedAt ?? now)
  const askedMs = made.outcome === 'unavailable' ? 0 : made.retryAfterMs
  if (askedMs !== undefined && sinceFirstMs + askedMs < UNAVAILABLE_MS) {
    // The provider's job is kept: it may have ended meanwhile, and another one would be paid for as well. The pauses grow, whatever a provider asks for.
    const readyAt = now + askedMs + jittered(Math.max(sinceFirstMs / 2, RETRY_MS.first), context.random())
    return requeue(context, task, readyAt, { attempts: Math.max(0, task.attempts - 1) }, 'retrying')
  }
  const { code, retryable, keepsJob, details }: FailedRun = made.outcome === 'unavailable' ? UNAVAILABLE : made
  if (retryable && task.attempts < task.maxAttempts) {
    const readyAt = now + jittered(RETRY_MS.first * 2 ** Math.max(0, task.attempts - 1), context.random())
    return requeue(context, task, readyAt, { attempts: task.attempts, ...(!keepsJob && { job: null, jobEngine: null }) }, 'retrying')
  }
  const ended = await end(context, task.id, guard, { outcome: 'failed', code, message: TASK_ERRORS[code], ...(details && { details }) })
  return ending(context, task, ended)
}

/** Claims the end of a task for one outcome, and settles it. Null when the guard refuses: another run has the task, or it has ended. */
export async function end(context: TaskContext, id: string, guard: TaskGuard, outcome: TaskOutcome): Promise<Task | null> {
  const at = context.clock()
  const settling = await context.store.moveTask(id, guard, 'settling', { outcome: { ...outcome, at }, sweepAt: at + SETTLING_MS })
  return settling && settle(context, settling)
}

/**
 * A task that is `settling` as it is once it is settled. The charge is computed from the task, never from the answer of `close`,
 * which a repeated settlement does not get again. `now`: its end, where an earlier release decided it.
 */
export function endedTask(task: Task, now: number): Task {
  const { outcome } = task
  if (!outcome) throw new TypeError(`task ${task.id} is settling without an outcome`)
  const cost = costOf(outcome) ?? 0
  const charge = Math.min(Math.max(cost, 0), task.estimatedCost)
  return {
    ...task,
    state: outcome.outcome,
    actualCost: charge,
    refundAmount: task.estimatedCost - charge,
    endedAt: Math.max(outcome.at ?? now, task.createdAt),
    progress: outcome.outcome === 'completed' ? 100 : task.progress,
  }
}

/** Null: nothing was made that costs, and the whole hold goes back. */
function costOf(outcome: TaskOutcome): number | null {
  return outcome.outcome === 'failed' ? null : (outcome.cost ?? null)
}

/** Closes the hold of a task that is `settling`, and makes it final in one write with its events. Every step may be repeated, by a sweep or concurrently. */
export async function settle(context: TaskContext, task: Task): Promise<Task | null> {
  const { store, clock } = context
  const ended = endedTask(task, clock())
  const { state, outcome, actualCost, refundAmount, endedAt, progress } = ended
  const actual = outcome && costOf(outcome) === null ? null : actualCost
  await removeInlineSources(context, task)
  const closed = await store.change(task.subscription, { op: 'close', task: task.id, actual, epoch: task.epoch }, clock())
  if (closed.outcome === 'closed') {
    context.moved('capture', task.tenant, closed.burned)
    context.moved('void', task.tenant, closed.held - closed.burned)
  }
  publishReady(context, task.subscription, closed.ready)
  const outbox = events(context, ended, closed.available)
  const final = await relay(context, ended, outbox, { state, facts: { actualCost, refundAmount, endedAt, progress } })
  return final ?? store.task(task.tenant, task.id)
}

/** The events of the contract (specification, section 3). A cancellation has none. */
function events(context: TaskContext, task: Task, available: number): OutboxEvent[] {
  const at = task.endedAt ?? task.createdAt
  const data = finalEventData(task, context.link)
  if (data === null) return []
  if (task.state === 'completed') return [{ event: 'task.completed', body: envelope('task.completed', at, data) }]
  const refunded = refundedData({ taskId: task.id, refundMicro: task.refundAmount ?? 0, newBalanceMicro: available })
  return [
    { event: 'task.failed', body: envelope('task.failed', at, data) },
    { event: 'task.refunded', body: envelope('task.refunded', at, refunded) },
  ]
}

/** How the run's task ended. A settlement that an earlier try of this run began, with unknown outcome, is continued. */
async function ending(context: TaskContext, task: Task, ended: Task | null): Promise<Concluded> {
  const now = ended ?? (await context.store.task(task.tenant, task.id))
  const settled = now?.state === 'settling' && now.epoch === task.epoch ? await settle(context, now) : now
  if (settled?.epoch !== task.epoch || (settled.state !== 'completed' && settled.state !== 'failed')) return { outcome: 'lost' }
  return { outcome: settled.state, task: settled }
}

/**
 * Cancels a task that is queued or processing: its hold is closed at once, for nothing or for the share that a begun run costs, and its run is aborted at the next
 * renewal of the lease. Throws `already_final` when it has ended, and `unavailable` while its creation may still hold money for it.
 */
export async function cancel(context: TaskContext, task: Task): Promise<Task> {
  if (await isBeingCreated(context, task)) throw overLimit('task_changes', { retryAfterSeconds: 1 })
  const begun = { outcome: 'canceled', ...costOfBegun(task) } as const
  const ended =
    (await end(context, task.id, { from: ['queued'] }, task.job === null ? { outcome: 'canceled' } : begun)) ??
    (await end(context, task.id, { from: ['processing'] }, begun))
  if (ended) return ended
  const now = await context.store.task(task.tenant, task.id)
  if (now?.state === 'settling' && now.outcome?.outcome === 'canceled') return (await settle(context, now)) ?? now
  throw new Failure('already_final')
}

async function isBeingCreated({ store, clock }: TaskContext, task: Task): Promise<boolean> {
  if (!isUnheld(task, null, clock()) || !isUnheld(task, await store.subscription(task.subscription), clock())) return false
  // Its hold may have been closed since the task was read.
  const now = await store.task(task.tenant, task.id)
  return now !== null && isUnheld(now, null, clock())
}

/** A provider bills a job that it has begun, canceled or not. The share is of the estimate that the client has agreed to. */
function costOfBegun({ cancelPercent = 0, estimatedCost, quotedCost = estimatedCost }: Task): { cost?: number } {
  return cancelPercent === 0 ? {} : { cost: Math.ceil((quotedCost * cancelPercent) / 100) }
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
  facts: { attempts: number; job?: null; jobEngine?: null },
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

/** Stores the id of the provider's job, and its engine, under the epoch of its run, so that a later run resumes it. `lost`: another run has the task, or it has ended. */
export async function rememberJob(
  { store }: Pick<TaskContext, 'store'>,
  task: Task,
  facts: { job: string; jobEngine: string },
): Promise<'remembered' | 'lost'> {
  return (await store.moveTask(task.id, { from: ['processing'], epoch: task.epoch }, 'processing', facts)) ? 'remembered' : 'lost'
}

function jittered(delayMs: number, random: number): number {
  const full = Math.min(RETRY_MS.max, delayMs)
  return Math.round(full / 2 + (full / 2) * random)
}
