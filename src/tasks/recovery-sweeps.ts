/** Recovery sweeps: each gap that a crash can leave between two writes of a task is found and closed. Each step may run twice, or beside the worker that seems dead. */
import { Unavailable } from '../domain/errors.ts'
import type { Store } from '../backends/store/store.ts'
import { aheadMs } from '../domain/subscription/clock-healing.ts'
import type { Subscription } from '../domain/subscription/subscription.ts'
import { entriesOf, holdOf, PASS_THROUGH } from '../domain/subscription/holds.ts'
import { FINAL, TASK_ERRORS, taskLogFields, type Task, type TaskErrorCode, type TaskGuard } from '../domain/task.ts'
import { eachDue, type SweepTurns } from './due-tasks.ts'
import { ABANDONED_MS } from './flat-charge.ts'
import { relay } from './outbox.ts'
import { readPages } from './paged-reads.ts'
import { publishReady } from './publish-ready.ts'
import { isUnheld, reject, REQUEST_MS } from './reject-task.ts'
import { release } from './release-money-hold.ts'
import { end, settle } from './run-outcome.ts'
import { PENDING_MS, QUEUED_MS, type TaskContext } from './task-context.ts'
import { sweepEach } from './sweep-pass.ts'

const BATCH = 100
/** Lost leases after which a task fails: its input may crash workers. */
const LOST_LEASES_MAX = 3
/** A claim older than this whose task never started belongs to a worker that died in between, or that will be refused. */
const CLAIM_MS = 60_000
/** Until a task is swept again whose sweep failed. */
const DEFERRED_MS = 15_000

export const REASONS = [
  'rejected',
  'unheld',
  'unserved',
  'settled',
  'relayed',
  'lost_lease',
  'orphan_hold',
  'unused_claim',
  'archived',
] as const

/** Repairs by reason. */
export type Swept = Record<(typeof REASONS)[number], number>

const nothing = () => Object.fromEntries(REASONS.map((reason) => [reason, 0])) as Swept

export type SweepOptions = {
  /** By how much an expired lease is extended instead of taken back, since its worker may have been unable to renew it; null: it is taken back. */
  graceMs: () => number | null
  /** How long a task may be ready without a worker that takes its kind or operation. */
  queueMs: number
  /** Whether an engine and a worker take a kind or operation. */
  isServed: (kind: string) => boolean
}

const DEFAULTS: SweepOptions = { graceMs: () => null, queueMs: Infinity, isServed: () => true }

/** One pass over the tasks that are due, in bounded batches and by tenant in turn (`due-tasks.ts`); the rest is due again at the next pass, which gets the same `turns`. */
export async function sweepTasks(context: TaskContext, options: SweepOptions = DEFAULTS, turns: SweepTurns = new Map()): Promise<Swept> {
  const swept = nothing()
  await eachDue(context, turns, async (tasks) => {
    // Read after the tasks, and once for all of a subscription: its queue may be long.
    const records = new Map<string, Promise<Subscription | null>>()
    const recordOf = (id: string): Promise<Subscription | null> => {
      const record = records.get(id) ?? context.store.subscription(id)
      records.set(id, record)
      return record
    }
    const sweep = async (task: Task): Promise<void> => {
      const reason = await sweepTask(context, task, options, recordOf)
      if (reason) swept[reason]++
    }
    await sweepEach(tasks, sweep, (task, err) => defer(context, task, err))
  })
  return swept
}

/** A task whose sweep failed goes to the end of the queue: others, of other tenants, may be behind more than a batch of such tasks. */
async function defer({ store, clock, log }: TaskContext, task: Task, err: unknown): Promise<void> {
  const facts = { event: 'task_sweep_failed', err, ...taskLogFields(task), state: task.state }
  log[err instanceof Unavailable ? 'warn' : 'error'](facts, 'task sweep failed, retrying')
  await store
    .moveTask(task.id, { from: [task.state], epoch: task.epoch }, task.state, { sweepAt: clock() + DEFERRED_MS })
    .catch((error: unknown) => log.warn({ ...facts, err: error }, 'task not deferred'))
}

/** One pass over the records with holds or ended periods: more expensive than `sweepTasks`, and for rarer gaps. */
export async function sweepSubscriptions(context: TaskContext): Promise<Swept> {
  const swept = nothing()
  const failed = ({ id }: Subscription, err: unknown): void => {
    const facts = { event: 'subscription_sweep_failed', err, subscription: id }
    context.log[err instanceof Unavailable ? 'warn' : 'error'](facts, 'subscription sweep failed, retrying')
  }
  // The tasks of a record from the future may be due far ahead, and its period only seems to have ended: the next pass finds it healed.
  const healedOr = (sweep: (record: Subscription) => Promise<unknown>) => (record: Subscription) =>
    aheadMs(record, context.clock()) === 0 ? sweep(record) : context.store.change(record.id, { op: 'heal' }, context.clock())
  await sweepEach(
    readPages(BATCH, (after) => context.store.subscriptionsWith('holds', after, BATCH)),
    healedOr((record) => sweepHolds(context, record, swept)),
    failed,
  )
  await sweepEach(
    readPages(BATCH, (after) => context.store.subscriptionsWith('past', after, BATCH)),
    healedOr((record) => archive(context, record, swept)),
    failed,
  )
  return swept
}

/**
 * Erases sealed keys that ended before `before`, once no task is left that was created with them: they sign its webhooks. A request may have been in progress
 * when its key ended. Returns how many, `limit` at most.
 */
export async function sweepKeys(store: Store, before: number, limit: number): Promise<number> {
  const oldest = await store.oldestTask()
  return store.forgetSealed(Math.min(before, (oldest ?? before) - REQUEST_MS), limit)
}

type RecordOf = (subscription: string) => Promise<Subscription | null>

async function sweepTask(context: TaskContext, task: Task, options: SweepOptions, recordOf: RecordOf): Promise<keyof Swept | null> {
  // For a task in any state: a pass may be long, and is no outage as long as the store answers for one task after the other.
  const graceMs = options.graceMs()
  switch (task.state) {
    case 'pending':
    case 'queued':
      return sweepQueued(context, task, options, await recordOf(task.subscription))
    case 'processing': {
      if (graceMs === null) return (await takeBack(context, task)) ? 'lost_lease' : null
      await context.store.moveTask(task.id, { from: ['processing'], epoch: task.epoch }, 'processing', {
        sweepAt: context.clock() + graceMs,
      })
      return null
    }
    case 'settling':
      return (await settle(context, task)) ? 'settled' : null
    default:
      await relay(context, task, task.outbox)
      return 'relayed'
  }
}

/** A queued task is rejected when its creation stopped before its hold. It fails when it can never be claimed: nothing is held for it, as after a partial restore, or no worker takes its kind or operation. `record` was read after the task. */
async function sweepQueued(
  context: TaskContext,
  task: Task,
  { queueMs, isServed }: SweepOptions,
  record: Subscription | null,
): Promise<'rejected' | 'unheld' | 'unserved' | null> {
  const now = context.clock()
  const guard = { from: ['queued'], epoch: task.epoch } as const
  const hold = holdOf(record?.media?.holds, task.id)
  if (isUnheld(task, record, now)) return (await reject(context, task)) ? 'rejected' : null
  if (!hold) return (await fail(context, task, guard, 'internal', 'nothing is held for it')) ? 'unheld' : null
  const hasWaited = hold.run === null && now - Math.max(hold.at, hold.readyAt) >= queueMs
  // While others of its plan fill the concurrency limit, no worker could take it.
  const isDue = record?.media?.due.some(({ kind }) => kind === task.kind)
  if (hasWaited && isDue && !isServed(task.kind))
    return (await fail(context, task, guard, 'not_supported', 'no engine or worker takes it')) ? 'unserved' : null
  await context.store.moveTask(task.id, guard, 'queued', { sweepAt: now + QUEUED_MS })
  return null
}

/** The lease of a run has expired. The task goes back to the queue and no attempt is counted; the third lost lease fails the task. */
async function takeBack(context: TaskContext, task: Task): Promise<boolean> {
  const guard = { from: ['processing'], epoch: task.epoch } as const
  const lostLeases = task.lostLeases + 1
  if (lostLeases >= LOST_LEASES_MAX) return fail(context, task, guard, 'internal', `${lostLeases} leases of its runs expired`)
  const queued = await context.store.moveTask(task.id, guard, 'queued', {
    lostLeases,
    attempts: Math.max(0, task.attempts - 1),
    sweepAt: context.clock() + QUEUED_MS,
  })
  if (!queued) return false
  const { ready } = await context.store.change(
    task.subscription,
    { op: 'requeue', task: task.id, epoch: task.epoch, readyAt: context.clock(), served: true },
    context.clock(),
  )
  publishReady(context, task.subscription, ready, { origin: task })
  return true
}

/** Fails a task for the operator's `reason`; false where the guard refuses. */
async function fail(context: TaskContext, task: Task, guard: TaskGuard, code: TaskErrorCode, reason: string): Promise<boolean> {
  if ((await end(context, task.id, guard, { outcome: 'failed', code, message: TASK_ERRORS[code] })) === null) return false
  context.log.warn({ event: 'task_failed_by_sweep', ...taskLogFields(task), kind: task.kind, code, reason }, 'sweep failed a task')
  return true
}

/** Compares the holds of a record with their tasks. The record was read before the tasks, so that a hold which its task's end has just closed is not taken for an orphan. */
async function sweepHolds(context: TaskContext, record: Subscription, swept: Swept): Promise<void> {
  const now = context.clock()
  for (const [id, hold] of entriesOf(record.media?.holds)) {
    const claimedLong = hold.run !== null && now - hold.run.at >= CLAIM_MS
    // A younger hold may belong to a task that is about to be queued, or to a pass-through request.
    if (!claimedLong && now - hold.at < (hold.kind === PASS_THROUGH ? ABANDONED_MS : PENDING_MS)) continue
    const task = await context.store.task(record.tenant, id)
    if (!task || FINAL.includes(task.state)) {
      if ((await release(context, record.id, id)) === 'closed') swept.orphan_hold++
    } else if (claimedLong && task.state === 'queued') {
      // The task gets the claim's epoch first: a late worker with that claim is refused.
      const fenced = await context.store.moveTask(id, { from: ['queued'], epochBelow: hold.epoch + 1 }, 'queued', { epoch: hold.epoch })
      if (!fenced) continue
      const waiting = await context.store.change(
        record.id,
        { op: 'requeue', task: id, epoch: hold.epoch, readyAt: now, served: false },
        now,
      )
      if (waiting.outcome === 'waiting') swept.unused_claim++
      publishReady(context, record.id, waiting.ready)
    }
  }
}

/** Archives ended periods without open holds, and removes them from the record. */
async function archive(context: TaskContext, record: Subscription, swept: Swept): Promise<void> {
  const account = record.media
  for (const period of account?.past ?? []) {
    if (account?.holds.periods.has(period.n)) continue
    await context.store.archivePeriod(record.id, period)
    const answer = await context.store.change(record.id, { op: 'archived', n: period.n }, context.clock())
    if (answer.outcome === 'archived') swept.archived++
  }
}
