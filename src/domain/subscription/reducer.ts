/**
 * The machine over one subscription's record: record + operation + time → next record + answer. Pure; the store reads, calls this and replaces by
 * compare-and-set, so every rule about plans, windows, money and the queue exists here once.
 */
import { admit, expire, extend, settle } from './token-reservations.ts'
import { archived, claim, close, hold, wait } from './task-queue.ts'
import type { Answer, Operation, OperationName } from './commands.ts'
import { applyPlan, keysChanged, removePlan } from './plan-changes.ts'
import type { Subscription } from './subscription.ts'

export type Step<A> = { record: Subscription | null; answer: A }

type Input<N extends OperationName> = Extract<Operation, { op: N }>

/**
 * Applies one operation to the record of subscription `id` (null: there is none yet). The same record object in the result means that nothing
 * has to be written. Time inside the record never goes back: an older `now` counts as the record's own.
 */
export function operate<N extends OperationName>(
  record: Subscription | null,
  operation: Input<N>,
  now: number,
  id: string,
): Step<Answer<N>>
export function operate(record: Subscription | null, operation: Operation, now: number, id: string): Step<Answer<OperationName>> {
  const at = Math.max(now, record?.at ?? 0)
  const step = dispatch(record, operation, at, id)
  if (step.record === record || step.record === null) return step
  return { record: { ...step.record, at }, answer: step.answer }
}

function dispatch(record: Subscription | null, operation: Operation, now: number, id: string): Step<Answer<OperationName>> {
  switch (operation.op) {
    case 'applyPlan':
      return applyPlan(record, operation, now, id)
    case 'removePlan':
      return removePlan(record, operation)
    case 'keysChanged':
      return keysChanged(record)
    case 'admit':
      return admit(record, operation, now)
    case 'extend':
      return extend(record, operation)
    case 'settle':
      return settle(record, operation, now)
    case 'expire':
      return expire(record, operation, now)
    case 'hold':
      return hold(record, operation, now)
    case 'claim':
      return claim(record, operation, now)
    case 'wait':
      return wait(record, operation)
    case 'close':
      return close(record, operation, now)
    case 'archived':
      return archived(record, operation)
  }
}
