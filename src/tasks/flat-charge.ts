/** The flat charge of a pass-through request in money: held while the service has not answered, then captured or returned. No task belongs to it. */
import type { Creating } from '../domain/subscription/commands.ts'
import { tenantOf } from '../domain/plans.ts'
import { PASS_THROUGH } from '../domain/subscription/holds.ts'
import { holdRefused } from './create-task.ts'
import type { TaskContext } from './task-context.ts'

/** A body must have arrived within this time of the first byte of its request. */
export const BODY_MS = 120_000
/** A service must begin its answer within this time, which starts anew while the body arrives. */
export const MOST_PENDING_MS = 300_000
/** A hold older than this belongs to a gateway that died. */
export const ABANDONED_MS = BODY_MS + MOST_PENDING_MS + 60_000

type ChargeContext = Pick<TaskContext, 'store' | 'clock' | 'moved'>

/** Holds the amount (micro-units) under `id`, and returns the subscription that pays. Throws the failures of the access table (402, 403, 429). */
export async function holdFlatCharge(
  { store, clock, moved }: ChargeContext,
  creating: Creating,
  id: string,
  amount: number,
): Promise<string> {
  let payer = ''
  const answer = await creating((subscription, facts) => {
    payer = subscription
    return store.change(subscription, { op: 'hold', task: id, kind: PASS_THROUGH, amount, ...facts }, clock())
  })
  if (answer.outcome !== 'held' && answer.outcome !== 'already') throw holdRefused(answer, amount, clock())
  if (answer.outcome === 'held') moved('hold', tenantOf(payer), amount)
  return payer
}

/** Captures the held amount, or returns it. Once; may be repeated. Returns whether it was held. Throws `Unavailable`. */
export async function closeFlatCharge(
  { store, clock, moved }: ChargeContext,
  payer: string,
  id: string,
  amount: number,
  outcome: 'capture' | 'void',
): Promise<boolean> {
  const closed = await store.change(payer, { op: 'close', task: id, actual: outcome === 'capture' ? amount : null }, clock())
  if (closed.outcome !== 'closed') return false
  moved(outcome, tenantOf(payer), amount)
  return true
}
