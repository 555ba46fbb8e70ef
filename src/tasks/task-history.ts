/** The history of a task as numbered events, derived from the stored task and its deliveries (`docs/media.md`, "Live events"). Pure. */
import { iso } from '../domain/iso-time.ts'
import { formatMoney } from '../domain/money.ts'
import { FINAL, type Delivery, type DeliveryAttempt, type Task, type TaskResult } from '../domain/task.ts'
import { finalEventData } from './final-event-data.ts'

export type HistoryEvent = {
  /** Grows within the history of a task, with gaps. The same event has the same number whenever and wherever the history is derived. */
  sequence: number
  name: string
  data: Record<string, unknown>
}

/** The numbers of what happens once. Progress, which never decreases, is 100 and its percentage. */
const SEQUENCE = {
  created: 1,
  held: 2,
  queued: 3,
  processing: 4,
  progress: 100,
  extended: 299,
  burned: 300,
  returned: 301,
  ended: 302,
  refunded: 303,
}
/** Attempts are numbered by how many of each of the two deliveries have been listed: 1,000,000 + 1,000 × of the first + of `task.refunded`. */
const ATTEMPTS = 1_000_000
const FIRST_DELIVERY = 1_000

/** The events of a task after the number `after` (0: all). Only a final task has deliveries. */
export function taskHistory(task: Task, deliveries: Delivery[], after: number, link: (result: TaskResult) => string): HistoryEvent[] {
  const past = [...begun(task), ...ended(task, link)].filter(({ sequence }) => sequence > after)
  return [...past, ...attempted(deliveries, after)]
}

function* begun(task: Task): Generator<HistoryEvent> {
  const { id: task_id, startedAt } = task
  const kind = task.object === 'generation' ? { kind: task.kind } : { operation: task.kind }
  yield {
    sequence: SEQUENCE.created,
    name: 'task.created',
    data: { task_id, object: task.object, ...kind, created_at: iso(task.createdAt) },
  }
  yield {
    sequence: SEQUENCE.held,
    name: 'balance.held',
    data: { task_id, amount: formatMoney(task.quotedCost ?? task.estimatedCost), at: iso(task.createdAt) },
  }
  yield { sequence: SEQUENCE.queued, name: 'task.queued', data: { task_id, status: 'queued', at: iso(task.createdAt) } }
  if (startedAt === null) return
  yield { sequence: SEQUENCE.processing, name: 'task.processing', data: { task_id, status: 'processing', at: iso(startedAt) } }
  const progress = Math.min(Math.floor(task.progress), 99)
  if (progress > 0 && !FINAL.includes(task.state))
    yield { sequence: SEQUENCE.progress + progress, name: 'task.progress', data: { task_id, status: 'processing', progress } }
}

function* ended(task: Task, link: (result: TaskResult) => string): Generator<HistoryEvent> {
  const { id: task_id, state, endedAt } = task
  if (!FINAL.includes(state) || endedAt === null) return
  const [refund, at] = [task.refundAmount ?? 0, iso(endedAt)]
  // Each run may extend the hold: how much was added is known at the end.
  const added = task.estimatedCost - (task.quotedCost ?? task.estimatedCost)
  if (added > 0) yield { sequence: SEQUENCE.extended, name: 'balance.held', data: { task_id, amount: formatMoney(added), at } }
  const burned = task.actualCost ?? 0
  if (state === 'completed' || burned > 0)
    yield { sequence: SEQUENCE.burned, name: 'balance.burned', data: { task_id, amount: formatMoney(burned), at } }
  if (refund > 0) yield { sequence: SEQUENCE.returned, name: 'balance.returned', data: { task_id, amount: formatMoney(refund), at } }
  const canceled = {
    task_id,
    status: state,
    estimated_cost: formatMoney(task.estimatedCost),
    refund_amount: formatMoney(refund),
    created_at: iso(task.createdAt),
    canceled_at: at,
  }
  yield { sequence: SEQUENCE.ended, name: `task.${state}`, data: finalEventData(task, link) ?? canceled }
  if (state === 'failed')
    yield { sequence: SEQUENCE.refunded, name: 'task.refunded', data: { task_id, refund_amount: formatMoney(refund) } }
}

/** The attempts after those that `after` counts, in the order in which they ended. */
function attempted(deliveries: Delivery[], after: number): HistoryEvent[] {
  const listed = Math.max(after - ATTEMPTS, 0)
  let [first, refunded] = [Math.floor(listed / FIRST_DELIVERY), listed % FIRST_DELIVERY]
  const isRefund = ({ event }: Delivery) => event === 'task.refunded'
  const attempts = deliveries.flatMap((delivery) =>
    delivery.attempts.slice(isRefund(delivery) ? refunded : first).map((attempt) => ({ delivery, attempt })),
  )
  return attempts
    .sort((a, b) => endOf(a.attempt) - endOf(b.attempt) || a.attempt.number - b.attempt.number)
    .map(({ delivery, attempt }) => {
      if (isRefund(delivery)) refunded++
      else first++
      return { sequence: ATTEMPTS + FIRST_DELIVERY * first + refunded, name: 'delivery.attempted', data: attemptData(delivery, attempt) }
    })
}

function attemptData({ id, taskId, event }: Delivery, attempt: DeliveryAttempt): Record<string, unknown> {
  const { number, durationMs, statusCode, error, responsePrefix, redelivery = false } = attempt
  return {
    task_id: taskId,
    delivery_id: id,
    event,
    number,
    at: iso(attempt.at),
    duration_ms: durationMs,
    status_code: statusCode,
    error,
    response_prefix: responsePrefix,
    redelivery,
  }
}

function endOf({ at, durationMs }: DeliveryAttempt): number {
  return at + durationMs
}
