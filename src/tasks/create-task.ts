/** Creating a task: `pending` → hold → `queued`. What is refused stores nothing; what is answered is queued. */
import { Failure } from '../domain/errors.ts'
import { formatMoney } from '../domain/money.ts'
import { reduce } from '../domain/subscription/reducer.ts'
import type { Answer, Creating, Stale } from '../domain/subscription/commands.ts'
import { planInactive, type Subscription } from '../domain/subscription/subscription.ts'
import { PENDING_MS, type TaskContext } from './task-context.ts'
import { release } from './release-hold.ts'
import type { Task } from '../domain/task.ts'

type HoldAnswer = Exclude<Answer<'hold'>, Stale> | { outcome: 'moved' }

/** What a caller brings; the rest of a task follows from it. */
export type NewTask = Pick<
  Task,
  'id' | 'tenant' | 'subscription' | 'keyId' | 'keyVersionId' | 'object' | 'verb' | 'input' | 'webhookUrl' | 'metadata' | 'idempotency' | 'price' | 'estimatedCost' | 'maxAttempts'
>

/** The key came to another plan in the midst of a creation. Nothing is held; the same request may be quoted and created there. */
export class KeyMoved extends Failure {
  constructor() {
    super('unavailable', { retryAfterSeconds: 1, cause: new Error('the key moved to another plan') })
  }
}

/** `record`: of the subscription whose key asks, at least as new as the request. */
export type Created = { outcome: 'created' | 'replayed'; task: Task; record: Subscription }

/**
 * Creates a task, or answers the one that another request made at the same time under its Idempotency-Key. `record` is the subscription's as `currentRecord` read it.
 * Throws the failures of the access table (402, 403, 429, 422), or `KeyMoved`, with nothing held, and `Unavailable` when the store cannot be asked: a task that is
 * not queued then is rejected by a sweep, which gives back the hold that may have been taken.
 */
export async function createTask(context: TaskContext, creating: Creating, draft: NewTask, record: Subscription): Promise<Created> {
  await couldHold(context, creating, draft, record)
  const now = context.clock()
  const { outcome, task } = await context.store.createTask(pendingTask(draft, now))
  if (outcome === 'existing' && task.id !== draft.id) return carryOn(context, creating, task, draft.idempotency, record)
  return { outcome: 'created', ...(await holdFor(context, creating, task)) }
}

/** The task that an Idempotency-Key made before, whatever has become of prices and balance since; null when there is none. Throws `idempotency_key_reused`. */
export async function replay(context: TaskContext, creating: Creating, tenant: string, idempotency: Task['idempotency'], record: Subscription): Promise<Created | null> {
  const known = idempotency && (await context.store.taskWithKey(tenant, idempotency.key))
  return known && carryOn(context, creating, known, idempotency, record)
}

/** The same key with the same body is the same task as it is now; one that is still `pending` is carried on. */
async function carryOn(context: TaskContext, creating: Creating, task: Task, idempotency: Task['idempotency'], record: Subscription): Promise<Created> {
  if (task.idempotency?.bodyHash !== idempotency?.bodyHash) throw new Failure('idempotency_key_reused')
  return { outcome: 'replayed', ...(task.state === 'pending' ? await holdFor(context, creating, task) : { task, record }) }
}

/** Asks the machine, without writing, whether the hold would be taken: what is refused here leaves no trace. */
async function couldHold({ store, clock }: TaskContext, creating: Creating, draft: NewTask, known: Subscription): Promise<void> {
  let tries = 0
  const answer = await creating(async (subscription, facts) => {
    if (subscription !== draft.subscription) return { outcome: 'moved' } as const
    // Asked again, it has other facts than that record, and only a newer one can tell who is right.
    const record = tries++ === 0 ? known : await store.subscription(subscription)
    const hold = { op: 'hold', task: draft.id, kind: draft.verb, amount: draft.estimatedCost, ...facts } as const
    return reduce<'hold'>(record, hold, clock(), subscription).answer
  })
  if (answer.outcome !== 'held' && answer.outcome !== 'already') throw refusalOf(answer, draft.estimatedCost)
}

/** Takes the hold and queues the task; refused, the task is rejected, which frees its Idempotency-Key in the same write. */
async function holdFor(context: TaskContext, creating: Creating, task: Task): Promise<{ task: Task; record: Subscription }> {
  const { store, clock } = context
  const answer = await creating(async (subscription, facts) => {
    if (subscription !== task.subscription) return { outcome: 'moved' } as const
    return store.change(subscription, { op: 'hold', task: task.id, kind: task.verb, amount: task.estimatedCost, ...facts }, clock())
  })
  if (answer.outcome === 'held') context.moved('hold', task.tenant, task.estimatedCost)
  if (answer.outcome !== 'held' && answer.outcome !== 'already') {
    await store.moveTask(task.id, { from: ['pending'] }, 'rejected', { idempotency: null, sweepAt: null, endedAt: clock() })
    throw refusalOf(answer, task.estimatedCost)
  }
  // Held is as good as accepted: an unknown outcome is looked up before the client is told that nothing was.
  const queued = await store
    .moveTask(task.id, { from: ['pending'] }, 'queued', { sweepAt: null })
    .catch(() => store.moveTask(task.id, { from: ['pending'] }, 'queued', { sweepAt: null }))
  if (queued) {
    context.publish(queued.verb, queued.id)
    return { task: queued, record: answer.record }
  }
  // Somebody else moved it: another request with its key, or the sweep, which rejected it and needs its hold closed.
  const moved = await store.task(task.tenant, task.id)
  if (moved && moved.state !== 'rejected') return { task: moved, record: answer.record }
  await release(context, task.subscription, task.id, task.estimatedCost)
  throw new Failure('unavailable', { retryAfterSeconds: 1 })
}

function refusalOf(answer: Exclude<HoldAnswer, { outcome: 'held' | 'already' }>, required: number): Failure {
  switch (answer.outcome) {
    case 'key_full':
      return new Failure('insufficient_balance', {
        message: 'What is left of the share of this API key does not cover the estimated cost. Nothing was charged.',
        beside: { required: formatMoney(required), available: formatMoney(answer.available) },
      })
    case 'insufficient':
      return new Failure('insufficient_balance', { beside: { required: formatMoney(required), available: formatMoney(answer.available) } })
    case 'inactive':
      return planInactive(answer.reason)
    case 'queue_full':
      return new Failure('queue_full', { retryAfterSeconds: 5 })
    case 'rate':
      return new Failure('rate_limited', { retryAfterSeconds: Math.max(1, Math.ceil(answer.retryAfterMs / 1000)) })
    case 'moved':
      return new KeyMoved()
  }
}

function pendingTask(draft: NewTask, now: number): Task {
  return {
    ...draft,
    state: 'pending',
    epoch: 0,
    progress: 0,
    attempts: 0,
    lostLeases: 0,
    outcome: null,
    actualCost: null,
    refundAmount: null,
    createdAt: now,
    startedAt: null,
    endedAt: null,
    sweepAt: now + PENDING_MS,
    outbox: [],
  }
}
