/** Invariants of one task and its deliveries. Pure; money is micro-units, times are epoch milliseconds. */
import { formatMoney } from '../domain/money.ts'
import { FINAL, type Delivery, type Task } from '../domain/task.ts'
import type { WebhookEvent } from '../domain/webhooks.ts'
import { releasedBy } from '../tasks/outbox.ts'

/** Sweeps close every gap well within this time. */
export const OVERDUE_MS = 10 * 60_000
/** Deliveries may queue for the slots of a busy receiver. */
const UNDELIVERED_MS = 60 * 60_000

/** The charge of a task, final or after settling; null while it is open. Between 0 and its quote. */
export function chargeOf({ outcome, estimatedCost }: Pick<Task, 'outcome' | 'estimatedCost'>): number | null {
  if (!outcome) return null
  return outcome.outcome === 'failed' ? 0 : Math.min(Math.max(outcome.cost ?? 0, 0), estimatedCost)
}

/** The violated invariants of a task, one sentence each. */
export function* taskViolations(task: Task, now: number): Generator<string> {
  for (const sentence of stateViolations(task)) yield `task ${task.id} of ${task.subscription} is ${task.state}, but ${sentence}`
  if (task.sweepAt !== null && now - task.sweepAt > OVERDUE_MS) {
    yield `task ${task.id} of ${task.subscription} is ${task.state}, and no process has picked it up for ${minutes(now - task.sweepAt)} minutes`
  }
}

function* stateViolations(task: Task): Generator<string> {
  const { state, outcome } = task
  const charge = chargeOf(task)
  if (task.attempts < 0 || task.attempts > task.maxAttempts) yield `${task.attempts} of ${task.maxAttempts} attempts were made`
  if (!FINAL.includes(state)) {
    if (task.endedAt !== null || task.actualCost !== null || task.refundAmount !== null) yield 'it has ended or was paid'
    if ((state === 'settling') !== (outcome !== null)) yield outcome ? `it has the outcome ${outcome.outcome}` : 'nothing has come of it'
    if (state === 'processing' && task.epoch < 1) yield 'nobody claimed it'
    if (state !== 'pending' && task.outbox.length > 0) yield 'it announces its end'
    return
  }
  if (task.endedAt === null) yield 'it has not ended'
  if (state === 'rejected') {
    if (task.idempotency !== null) yield 'it keeps its Idempotency-Key'
    if (outcome !== null || task.actualCost !== null) yield 'something came of it'
    return
  }
  if (outcome?.outcome !== state) yield `it came to be ${outcome?.outcome ?? 'nothing'}`
  if (task.actualCost !== charge) yield `was charged ${money(task.actualCost)} instead of ${money(charge)}`
  if (task.refundAmount !== task.estimatedCost - (charge ?? 0)) {
    yield `of ${money(task.estimatedCost)} held, ${money(task.actualCost)} was charged and ${money(task.refundAmount)} went back`
  }
  if ((state === 'completed') !== (task.progress === 100)) yield `its progress is ${task.progress}`
}

/** The events of a finished task (specification, section 6). */
export function eventsOf(task: Pick<Task, 'state'>): WebhookEvent[] {
  if (task.state === 'completed') return ['task.completed']
  return task.state === 'failed' ? ['task.failed', 'task.refunded'] : []
}

/** The violated invariants of the deliveries of a task that was read before them and has an empty outbox. */
export function* deliveryViolations(task: Task, deliveries: Delivery[], now: number): Generator<string> {
  const wanted = task.webhookUrl === null ? [] : eventsOf(task)
  const made = deliveries.map(({ event }) => event)
  if (task.outbox.length === 0 && String(made.toSorted()) !== String(wanted.toSorted())) {
    const should = `is ${task.state} and should have sent ${list(wanted)}`
    yield `task ${task.id} of ${task.subscription} ${should}, but has deliveries of ${list(made)}`
  }
  const released = new Set(deliveries.flatMap((delivery) => (delivery.attempts.length > 0 ? [releasedBy(delivery)] : [])))
  for (const delivery of deliveries) {
    if (delivery.state === 'waiting' && released.has(delivery.id))
      yield `delivery ${delivery.id} of ${task.subscription} waits for another one, which was attempted`
    for (const sentence of attemptViolations(delivery, now)) yield `delivery ${delivery.id} of ${task.subscription} ${sentence}`
  }
}

function* attemptViolations({ state, attempts, nextAttemptAt, leaseUntil }: Delivery, now: number): Generator<string> {
  if (attempts.some(({ number }, i) => number !== i + 1)) yield `has attempts ${attempts.map(({ number }) => number).join(', ')}`
  const last = attempts.at(-1)
  const arrived = last?.statusCode !== undefined && last.statusCode !== null && last.statusCode >= 200 && last.statusCode < 300
  if (state === 'delivered' && !arrived) yield 'is said to be delivered, but its last attempt did not arrive'
  if (state === 'failed' && (attempts.length === 0 || arrived)) yield 'is said to have failed, but did not'
  if ((state === 'pending') !== (nextAttemptAt !== null)) yield `is ${state} and due ${nextAttemptAt === null ? 'never' : 'again'}`
  const due = Math.max(nextAttemptAt ?? 0, leaseUntil ?? 0)
  if (state === 'pending' && now - due > UNDELIVERED_MS) yield `is due, and nobody made an attempt for ${minutes(now - due)} minutes`
}

function money(micro: number | null): string {
  return micro === null ? 'nothing' : micro < 0 ? `-${formatMoney(-micro)}` : formatMoney(micro)
}

function minutes(ms: number): number {
  return Math.floor(ms / 60_000)
}

function list(events: string[]): string {
  return events.length === 0 ? 'nothing' : events.join(' and ')
}
