/** A run of a task, from its claim to what comes of it. The worker owns the timers; every write here is fenced by the epoch of the claim. */
import type { TaskDoors } from './doors.ts'
import { release } from './release.ts'
import { end, settle } from './settle.ts'
import { FINAL, TASK_ERRORS, type Task, type TaskErrorCode, type TaskResult } from './task.ts'

/** What an engine's run came to. `cost` is micro-units by the price that the task was quoted at. */
export type Made =
  | { outcome: 'made'; result: TaskResult; cost: number }
  | { outcome: 'failed'; code: TaskErrorCode; retryable: boolean }
  /** The worker stops: the run is handed back and costs no attempt. */
  | { outcome: 'handed_back' }

/** `task` is how it ended, where it did. */
export type Concluded = { outcome: 'completed' | 'failed'; task: Task } | { outcome: 'retrying' | 'handed_back' | 'lost' }

const SUBSCRIPTIONS_ASKED = 16
/** How long a hold waits whose task could not be begun: a task that is not queued yet as long again as it is old, within bounds. */
const WAIT_MS = { least: 20, most: 5_000, other: 1_000 }
const RETRY_MS = { first: 2_000, longest: 60_000 }

/** `lookAgainAt`: nothing could be begun, but something will be ready then. */
export type Next = { task: Task; lookAgainAt: null } | { task: null; lookAgainAt: number | null }

/** Claims the next task of these verbs: the store names the subscriptions longest unserved, the record of each chooses its oldest. */
export async function claimNext(doors: TaskDoors, verbs: string[], leaseMs: number): Promise<Next> {
  const { store, clock } = doors
  let lookAgainAt: number | null = null
  for (const subscription of await store.subscriptionsDue(verbs, clock(), SUBSCRIPTIONS_ASKED)) {
    const claimed = await store.change(subscription, { op: 'claim', claim: doors.uuid(), kinds: verbs }, clock())
    if (claimed.outcome === 'none') continue
    const begun = await begin(doors, subscription, claimed.task, claimed.epoch, leaseMs)
    if (begun.task) return begun
    lookAgainAt = Math.min(lookAgainAt ?? begun.lookAgainAt, begun.lookAgainAt)
  }
  return { task: null, lookAgainAt }
}

/** Brings the claim to the task: `queued` → `processing` under the claim's epoch, if that is above the task's own. */
async function begin(doors: TaskDoors, subscription: string, id: string, epoch: number, leaseMs: number): Promise<{ task: Task; lookAgainAt: null } | { task: null; lookAgainAt: number }> {
  const { store, clock } = doors
  const tenant = subscription.slice(0, subscription.indexOf('/'))
  const task = await store.task(tenant, id)
  if (task?.state === 'queued') {
    const now = clock()
    const facts = { epoch, attempts: task.attempts + 1, startedAt: task.startedAt ?? now, sweepAt: now + leaseMs }
    const begun = await store.moveTask(id, { from: ['queued'], epochBelow: epoch }, 'processing', facts)
    if (begun) return { task: begun, lookAgainAt: null }
  }
  return { task: null, lookAgainAt: await giveUp(doors, subscription, id, epoch, task) }
}

/** The claim lost its write on the task: what is done about the hold depends on how far the task is. Returns when to look again. */
async function giveUp(doors: TaskDoors, subscription: string, id: string, epoch: number, task: Task | null): Promise<number> {
  const now = doors.clock()
  if (task?.state === 'settling') {
    await settle(doors, task)
    return now
  }
  if (!task || FINAL.includes(task.state)) {
    await release(doors, subscription, id, task?.estimatedCost ?? 0)
    return now
  }
  // Never at once: the head of the queue must not be claimed in a hot loop. A pending task is about to be queued, or to be rejected by the sweep.
  const waitMs = task.state === 'pending' ? Math.min(WAIT_MS.most, Math.max(WAIT_MS.least, now - task.createdAt)) : WAIT_MS.other
  await doors.store.change(subscription, { op: 'wait', task: id, epoch, readyAt: now + waitMs, served: false }, now)
  return now + waitMs
}

/** Writes down what a run came to: the end of the task, another attempt, or the run handed back. `lost`: the task is no longer this run's. */
export async function conclude(doors: TaskDoors, task: Task, made: Made): Promise<Concluded> {
  const guard = { from: ['processing'], epoch: task.epoch } as const
  if (made.outcome === 'made') {
    const ended = await end(doors, task.id, guard, { outcome: 'completed', cost: made.cost, result: made.result })
    return ending(doors, task, ended)
  }
  if (made.outcome === 'handed_back') return requeue(doors, task, doors.clock(), Math.max(0, task.attempts - 1), 'handed_back')
  if (made.retryable && task.attempts < task.maxAttempts) {
    return requeue(doors, task, doors.clock() + retryDelayMs(task.attempts, doors.random()), task.attempts, 'retrying')
  }
  const ended = await end(doors, task.id, guard, { outcome: 'failed', code: made.code, message: TASK_ERRORS[made.code] })
  return ending(doors, task, ended)
}

/** How the run's task ended. An end that was begun under this run's epoch, by an earlier try whose outcome was not learned, is carried on. */
async function ending(doors: TaskDoors, task: Task, ended: Task | null): Promise<Concluded> {
  const now = ended ?? (await doors.store.task(task.tenant, task.id))
  const settled = now?.state === 'settling' && now.epoch === task.epoch ? await settle(doors, now) : now
  if (settled?.epoch !== task.epoch || (settled.state !== 'completed' && settled.state !== 'failed')) return { outcome: 'lost' }
  return { outcome: settled.state, task: settled }
}

async function requeue(doors: TaskDoors, task: Task, readyAt: number, attempts: number, outcome: 'retrying' | 'handed_back'): Promise<Concluded> {
  const queued = await doors.store.moveTask(task.id, { from: ['processing'], epoch: task.epoch }, 'queued', { attempts, sweepAt: null })
  const now = queued ?? (await doors.store.task(task.tenant, task.id))
  // Queued under our epoch: by an earlier try whose outcome was not learned.
  if (now?.state !== 'queued' || now.epoch !== task.epoch) return { outcome: 'lost' }
  await doors.store.change(task.subscription, { op: 'wait', task: task.id, epoch: task.epoch, readyAt, served: true }, doors.clock())
  if (readyAt <= doors.clock()) doors.ring(task.verb, task.id)
  return { outcome }
}

/** The pause before the next attempt: doubling from two seconds to a minute, spread over its upper half by `random` (0 up to 1). */
export function retryDelayMs(attempts: number, random: number): number {
  const full = Math.min(RETRY_MS.longest, RETRY_MS.first * 2 ** Math.max(0, attempts - 1))
  return Math.round(full / 2 + (full / 2) * random)
}
