/** A run of a task, from its claim to what comes of it. The worker owns the timers; every write here is fenced by the epoch of the claim. */
import type { TaskContext } from './task-context.ts'
import { release } from './release-hold.ts'
import { end, settle } from './settle-and-cancel.ts'
import { FINAL, TASK_ERRORS, type Task, type TaskErrorCode, type TaskResult } from '../domain/task.ts'

/** What an engine's run came to. `cost` is micro-units by the price that the task was quoted at. */
export type Made =
  | { outcome: 'made'; result: TaskResult; cost: number }
  | { outcome: 'failed'; code: TaskErrorCode; retryable: boolean }
  /** The worker stops: the run is handed back and costs no attempt. */
  | { outcome: 'handed_back' }

/** `task` is how it ended, where it did. */
export type Concluded = { outcome: 'completed' | 'failed'; task: Task } | { outcome: 'retrying' | 'handed_back' | 'lost' }

const SUBSCRIPTIONS_ASKED = 16
/** Tasks of one subscription that are claimed side by side: one write takes them all. */
const MOST_OF_ONE = 16
/** How long a hold waits whose task could not be begun. One that is not queued yet is about to be, and looked at soon while it is young; after that as long again as it is old. */
const WAIT_MS = { least: 20, most: 5_000, other: 1_000 }
const YOUNG_MS = 1_000
const RETRY_MS = { first: 2_000, longest: 60_000 }

/** What is looked for: tasks of these verbs, `most` of them or fewer. `start` takes each as soon as it is begun: its lease runs. */
export type Wanted = { verbs: string[]; most: number; leaseMs: number; start(task: Task): void }

/** `lookAgainAt`: something that was claimed could not be begun, and will be ready then. */
export type Claimed = { begun: number; lookAgainAt: number | null }

/**
 * Claims tasks, and begins none only when none is ready: the store names the subscriptions longest unserved, the record of each chooses its oldest. Claims of one
 * turn are made side by side, so that they share writes. Rejects when nothing was begun and what became of a claim is not known.
 */
export async function claimDue(context: TaskContext, wanted: Wanted): Promise<Claimed> {
  const { verbs, most } = wanted
  const due = await context.store.subscriptionsDue(verbs, context.clock(), SUBSCRIPTIONS_ASKED)
  const claimed: Claimed = { begun: 0, lookAgainAt: null }
  for (let asked = 0; asked < due.length && claimed.begun === 0; asked += most) {
    const turn = due.slice(asked, asked + most)
    const ofEach = Math.min(MOST_OF_ONE, Math.floor(most / turn.length))
    const claims = turn.flatMap((subscription) => Array.from({ length: ofEach }, () => claimOne(context, subscription, wanted, claimed)))
    const failed = (await Promise.allSettled(claims)).flatMap((claim) => (claim.status === 'rejected' ? [claim.reason as Error] : []))
    if (claimed.begun === 0 && failed[0]) throw failed[0]
    for (const err of failed) context.log.warn({ err }, 'a claim came to nothing; its task will be looked for again')
  }
  return claimed
}

/** Claims one task of the subscription, and adds to `claimed` what came of it. */
async function claimOne(context: TaskContext, subscription: string, { verbs, leaseMs, start }: Wanted, claimed: Claimed): Promise<void> {
  const claim = await context.store.change(subscription, { op: 'claim', claim: context.uuid(), kinds: verbs }, context.clock())
  if (claim.outcome === 'none') return
  const task = await begin(context, subscription, claim.task, claim.epoch, leaseMs)
  if (typeof task === 'number') {
    claimed.lookAgainAt = Math.min(claimed.lookAgainAt ?? task, task)
  } else {
    claimed.begun++
    start(task)
  }
}

/** Brings the claim to the task: `queued` → `processing` under the claim's epoch, if that is above the task's own. When that is not to be: the time to look again. */
async function begin(context: TaskContext, subscription: string, id: string, epoch: number, leaseMs: number): Promise<Task | number> {
  const { store, clock } = context
  const tenant = subscription.slice(0, subscription.indexOf('/'))
  const task = await store.task(tenant, id)
  if (task?.state === 'queued') {
    const now = clock()
    const facts = { epoch, attempts: task.attempts + 1, startedAt: task.startedAt ?? now, sweepAt: now + leaseMs }
    const begun = await store.moveTask(id, { from: ['queued'], epochBelow: epoch }, 'processing', facts)
    if (begun) return begun
  }
  return giveUp(context, subscription, id, epoch, task)
}

/** The claim lost its write on the task: what is done about the hold depends on how far the task is. Returns when to look again. */
async function giveUp(context: TaskContext, subscription: string, id: string, epoch: number, task: Task | null): Promise<number> {
  const now = context.clock()
  if (task?.state === 'settling') {
    await settle(context, task)
    return now
  }
  if (!task || FINAL.includes(task.state)) {
    await release(context, subscription, id, task?.estimatedCost ?? 0)
    return now
  }
  // Never at once: the head of the queue must not be claimed in a hot loop. A pending task is about to be queued, or to be rejected by the sweep.
  const pendingMs = now - task.createdAt
  const waitMs = task.state !== 'pending' ? WAIT_MS.other : pendingMs < YOUNG_MS ? WAIT_MS.least : Math.min(WAIT_MS.most, pendingMs)
  await context.store.change(subscription, { op: 'requeue', task: id, epoch, readyAt: now + waitMs, served: false }, now)
  return now + waitMs
}

/** Writes down what a run came to: the end of the task, another attempt, or the run handed back. `lost`: the task is no longer this run's. */
export async function conclude(context: TaskContext, task: Task, made: Made): Promise<Concluded> {
  const guard = { from: ['processing'], epoch: task.epoch } as const
  if (made.outcome === 'made') {
    const ended = await end(context, task.id, guard, { outcome: 'completed', cost: made.cost, result: made.result })
    return ending(context, task, ended)
  }
  if (made.outcome === 'handed_back') return requeue(context, task, context.clock(), Math.max(0, task.attempts - 1), 'handed_back')
  if (made.retryable && task.attempts < task.maxAttempts) {
    return requeue(context, task, context.clock() + retryDelayMs(task.attempts, context.random()), task.attempts, 'retrying')
  }
  const ended = await end(context, task.id, guard, { outcome: 'failed', code: made.code, message: TASK_ERRORS[made.code] })
  return ending(context, task, ended)
}

/** How the run's task ended. An end that was begun under this run's epoch, by an earlier try whose outcome was not learned, is carried on. */
async function ending(context: TaskContext, task: Task, ended: Task | null): Promise<Concluded> {
  const now = ended ?? (await context.store.task(task.tenant, task.id))
  const settled = now?.state === 'settling' && now.epoch === task.epoch ? await settle(context, now) : now
  if (settled?.epoch !== task.epoch || (settled.state !== 'completed' && settled.state !== 'failed')) return { outcome: 'lost' }
  return { outcome: settled.state, task: settled }
}

async function requeue(context: TaskContext, task: Task, readyAt: number, attempts: number, outcome: 'retrying' | 'handed_back'): Promise<Concluded> {
  const queued = await context.store.moveTask(task.id, { from: ['processing'], epoch: task.epoch }, 'queued', { attempts, sweepAt: null })
  const now = queued ?? (await context.store.task(task.tenant, task.id))
  // Queued under our epoch: by an earlier try whose outcome was not learned.
  if (now?.state !== 'queued' || now.epoch !== task.epoch) return { outcome: 'lost' }
  await context.store.change(task.subscription, { op: 'requeue', task: task.id, epoch: task.epoch, readyAt, served: true }, context.clock())
  if (readyAt <= context.clock()) context.publish(task.verb, task.id)
  return { outcome }
}

/** The pause before the next attempt: doubling from two seconds to a minute, spread over its upper half by `random` (0 up to 1). */
export function retryDelayMs(attempts: number, random: number): number {
  const full = Math.min(RETRY_MS.longest, RETRY_MS.first * 2 ** Math.max(0, attempts - 1))
  return Math.round(full / 2 + (full / 2) * random)
}
