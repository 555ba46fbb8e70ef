/**
 * Creation of a task: uploads → `queued` → hold. A worker takes it by its hold alone. A refused request leaves nothing behind; an accepted one is held before the answer. Earlier
 * releases stored it as `pending` and queued it once it was held.
 */
import { Failure, overLimit, Unavailable } from '../domain/errors.ts'
import { formatMoney } from '../domain/money.ts'
import { rateHeaders } from '../domain/rate-limit.ts'
import { heal } from '../domain/subscription/clock-healing.ts'
import { reduce } from '../domain/subscription/reducer.ts'
import type { Answer, Creating, Stale } from '../domain/subscription/commands.ts'
import { heldTask } from '../domain/subscription/ready-tasks.ts'
import { planInactive, type Subscription } from '../domain/subscription/subscription.ts'
import { FINAL, type Task } from '../domain/task.ts'
import { publishReady } from './publish-ready.ts'
import { release } from './release-money-hold.ts'
import type { Upload } from './source-urls.ts'
import { isUnheld, reject } from './reject-task.ts'
import { PENDING_MS, QUEUED_MS, type TaskContext } from './task-context.ts'
import { removeInlineSources, storeInlineSources } from './inline-sources.ts'

type HoldAnswer = Exclude<Answer<'hold'>, Stale> | { outcome: 'moved' }
type HoldRefusal = Exclude<HoldAnswer, { outcome: 'held' | 'already' }>

/** From its start on a creation is accepted for so long without confirming its task, and no other request rejects it: twice as long, as the clocks of two machines differ. */
const UNCONFIRMED_MS = 10_000
const ABANDONED_MS = 2 * UNCONFIRMED_MS

/** The members of a task that its request decides. */
export type NewTask = Pick<
  Task,
  | 'id'
  | 'tenant'
  | 'subscription'
  | 'keyId'
  | 'keyVersionId'
  | 'object'
  | 'kind'
  | 'input'
  | 'webhookUrl'
  | 'metadata'
  | 'idempotency'
  | 'traceparent'
  | 'requestId'
  | 'price'
  | 'cancelPercent'
  | 'estimatedCost'
  | 'extendableTo'
  | 'quotedCost'
  | 'maxAttempts'
>

/** The key moved to another plan during a creation. Nothing is held; the same request may be quoted and created there. */
export class KeyMoved extends Failure {
  constructor() {
    super('unavailable', { limit: 'key_changes', retryAfterSeconds: 1, cause: new Error('the key moved to another plan') })
  }
}

/** Instead of the sentence of `unavailable`, which says that nothing was accepted. */
const UNKNOWN =
  'The service is not available at the moment, and whether the task was accepted is not known. Repeat the request with the same Idempotency-Key, or list the tasks first.'

/** `record`: of the caller's subscription, read after the request came. */
export type Created = { outcome: 'created' | 'replayed'; task: Task; record: Subscription }

/**
 * Creates a task, or answers the one that a concurrent request made under its Idempotency-Key. `record` is the subscription's as `currentRecord` read it.
 * Throws the failures of the access table (402, 403, 429, 422), or `KeyMoved`, with nothing held, and `Unavailable` when a backend fails: a task that is
 * not held then is rejected, by this request or the sweep.
 */
export async function createTask(
  context: TaskContext,
  creating: Creating,
  request: NewTask,
  record: Subscription,
  uploads: readonly Upload[] = [],
): Promise<Created> {
  await checkHold(context, creating, request, record)
  await storeInlineSources(context, request, uploads)
  const now = context.clock()
  const { outcome, task } = await context.store.createTask(queuedTask(request, now))
  if (outcome === 'existing' && task.id !== request.id) {
    await removeInlineSources(context, request)
    return continueCreation(context, creating, task, request.idempotency, record)
  }
  return { outcome: 'created', ...(await holdFor(context, creating, task)) }
}

/** The task of an Idempotency-Key, whatever prices and balance are now; null when there is none. Throws `idempotency_key_reused`. */
export async function replay(
  context: TaskContext,
  creating: Creating,
  tenant: string,
  idempotency: Task['idempotency'],
  record: Subscription,
): Promise<Created | null> {
  const known = idempotency && (await context.store.taskWithKey(tenant, idempotency.key))
  return known && continueCreation(context, creating, known, idempotency, record)
}

/** The same key with the same body is the same task, in its present state. The creation of one that nothing is held for is continued. `record` is the caller's, whose key may have moved since. */
async function continueCreation(
  context: TaskContext,
  creating: Creating,
  task: Task,
  idempotency: Task['idempotency'],
  record: Subscription,
): Promise<Created> {
  if (task.idempotency?.bodyHash !== idempotency?.bodyHash) throw new Failure('idempotency_key_reused')
  const own = record.id === task.subscription ? record : await context.store.subscription(task.subscription)
  const now = context.clock()
  if (!isUnheld(task, own, now)) return { outcome: 'replayed', task, record }
  const answer = await hold(context, creating, task).catch(outcomeUnknown)
  if (answer.outcome === 'held' || answer.outcome === 'already')
    return { outcome: 'replayed', ...(await confirm(context, task, answer.record)) }
  // The request that created it may have been accepted without confirming it: since this answer, or on the plan that the key left.
  if (now - task.createdAt < ABANDONED_MS || answer.outcome === 'moved') throw holdRefused(answer, task.estimatedCost, now)
  return { outcome: 'replayed', ...(await refused(context, task, answer)) }
}

/** Evaluates the hold without writing it: a request that is refused here leaves no trace. */
async function checkHold({ store, clock }: TaskContext, creating: Creating, request: NewTask, known: Subscription): Promise<void> {
  let tries = 0
  const answer = await creating(async (subscription, facts) => {
    if (subscription !== request.subscription) return { outcome: 'moved' } as const
    // A second try has other facts of the key than that record: only a newer record decides.
    const record = tries++ === 0 ? known : await store.subscription(subscription)
    const now = clock()
    const hold = { op: 'hold', task: request.id, kind: request.kind, amount: request.estimatedCost, ...facts } as const
    return reduce<'hold'>(record && heal(record, now), hold, now, subscription).answer
  })
  if (answer.outcome !== 'held' && answer.outcome !== 'already') throw holdRefused(answer, request.estimatedCost, clock())
}

/** Takes the hold of a task that this request created. When it is refused the task is rejected, which frees its Idempotency-Key in the same write. */
async function holdFor(context: TaskContext, creating: Creating, task: Task): Promise<{ task: Task; record: Subscription }> {
  const answer = await hold(context, creating, task).catch(async (error: unknown) =>
    // Held or not, once it is rejected nothing was accepted.
    (await reject(context, task).catch(() => false)) ? Promise.reject(error) : outcomeUnknown(error),
  )
  if (answer.outcome !== 'held' && answer.outcome !== 'already') return refused(context, task, answer)
  // The sweep leaves it alone for so long, and no other request rejects it.
  if (context.clock() - task.createdAt < UNCONFIRMED_MS) return accepted(context, task, answer.record)
  return confirm(context, task, answer.record)
}

/** Rejects a task whose hold was refused, unless another request with its key has confirmed it since, and a worker reads the uploads. */
async function refused(context: TaskContext, task: Task, answer: HoldRefusal): Promise<{ task: Task; record: Subscription }> {
  const rejected = await reject(context, task)
  const present = rejected ? null : await context.store.task(task.tenant, task.id)
  const record = present && present.state !== 'rejected' ? await context.store.subscription(task.subscription) : null
  if (present && record && !isUnheld(present, record, context.clock())) return { task: present, record }
  throw holdRefused(answer, task.estimatedCost, context.clock())
}

/** Takes the hold of a task, or finds it taken. */
async function hold({ store, clock, moved }: TaskContext, creating: Creating, task: Task): Promise<HoldAnswer> {
  const answer = await creating(async (subscription, facts) => {
    if (subscription !== task.subscription) return { outcome: 'moved' } as const
    const command = { op: 'hold', task: task.id, kind: task.kind, amount: task.estimatedCost, ...facts } as const
    return store.change(subscription, command, clock())
  })
  if (answer.outcome === 'held') moved('hold', task.tenant, task.estimatedCost)
  return answer
}

function outcomeUnknown(error: unknown): never {
  throw error instanceof Unavailable ? overLimit(error.limit, { message: UNKNOWN, retryAfterSeconds: 2, cause: error }) : error
}

function accepted(context: TaskContext, task: Task, record: Subscription): { task: Task; record: Subscription } {
  const ready = heldTask(record, task.id)
  publishReady(context, task.subscription, ready ? [ready] : [], { origin: task })
  return { task, record }
}

/** Keeps the sweep, and the request that created it, from rejecting a task that is held. Throws `Unavailable` when its outcome stays unknown. */
async function confirm(context: TaskContext, task: Task, record: Subscription): Promise<{ task: Task; record: Subscription }> {
  const { store, clock } = context
  const move = () => store.moveTask(task.id, { from: ['pending', 'queued'] }, 'queued', { sweepAt: clock() + QUEUED_MS })
  const queued = await move().catch(move).catch(outcomeUnknown)
  if (queued) return accepted(context, queued, record)
  const moved = await store.task(task.tenant, task.id)
  // It may have ended before this hold was taken, for example by a cancellation.
  if (!moved || FINAL.includes(moved.state)) await release(context, task.subscription, task.id)
  if (moved && moved.state !== 'rejected') return { task: moved, record }
  throw overLimit('task_changes', { retryAfterSeconds: 1 })
}

/** The failure that answers a refused hold of `required` micro-units. */
export function holdRefused(answer: HoldRefusal, required: number, now: number): Failure {
  switch (answer.outcome) {
    case 'key_full':
      return new Failure('insufficient_balance', {
        message: "The rest of this API key's share does not cover the estimated cost. Nothing was charged.",
        beside: { required: formatMoney(required), available: formatMoney(answer.available) },
      })
    case 'insufficient':
      return new Failure('insufficient_balance', { beside: { required: formatMoney(required), available: formatMoney(answer.available) } })
    case 'inactive':
      return planInactive(answer.reason)
    case 'queue_full':
      return overLimit('plan_queue', { retryAfterSeconds: 5 })
    case 'rate':
      return overLimit('plan_rate', {
        retryAfterSeconds: Math.max(1, Math.ceil(answer.retryAfterMs / 1000)),
        headers: rateHeaders(answer.record.rate, answer.record.terms.requestsPerMinute, now),
      })
    case 'moved':
      return new KeyMoved()
  }
}

function queuedTask(request: NewTask, now: number): Task {
  return {
    ...request,
    state: 'queued',
    epoch: 0,
    progress: 0,
    attempts: 0,
    lostLeases: 0,
    job: null,
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
