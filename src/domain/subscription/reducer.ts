/**
 * The reducer of a subscription's record: record + command + time → next record + answer. Pure; the store reads, reduces and replaces by
 * compare-and-set, so every rule about plans, windows, money and the queue exists once.
 */
import { CodingLedger } from './coding-ledger.ts'
import { applyToLedger, withoutAccount, type CodingCommand } from './token-reservations.ts'
import { archived, claim, close, extendHold, hold, requeue } from './task-queue.ts'
import type { Answer, Command, CommandName } from './commands.ts'
import { applyPlan, keysChanged, removePlan } from './plan-changes.ts'
import { countRefusals } from './refusals.ts'
import type { Subscription } from './subscription.ts'
import type { UsageRecord } from '../usage-records.ts'

export type Step<A> = { record: Subscription | null; answer: A }

type Input<N extends CommandName> = Extract<Command, { op: N }>

/**
 * Applies one command to the record of subscription `id` (null: there is none yet). The same record object in the result means that nothing
 * has to be written. Time inside the record never goes back: an older `now` counts as the record's own. Usage records are added to `made`; null: none are made.
 */
export function reduce<N extends CommandName>(
  record: Subscription | null,
  command: Input<N>,
  now: number,
  id: string,
  made?: UsageRecord[] | null,
): Step<Answer<N>>
export function reduce(
  record: Subscription | null,
  command: Command,
  now: number,
  id: string,
  made: UsageRecord[] | null = null,
): Step<Answer<CommandName>> {
  const at = Math.max(now, record?.at ?? 0)
  const step = dispatch(record, command, at, id, made)
  if (step.record === record || step.record === null) return step
  return { record: { ...step.record, at }, answer: step.answer }
}

function dispatch(
  record: Subscription | null,
  command: Command,
  now: number,
  id: string,
  made: UsageRecord[] | null,
): Step<Answer<CommandName>> {
  switch (command.op) {
    case 'applyPlan':
      return applyPlan(record, command, now, id)
    case 'removePlan':
      return removePlan(record, command)
    case 'keysChanged':
      return keysChanged(record)
    case 'heal':
      return { record, answer: { outcome: 'healed' } }
    case 'admit':
    case 'extend':
    case 'settle':
    case 'expire':
    case 'lease':
      return reduceCoding(record, command, now, made)
    case 'countRefusals':
      return countRefusals(record, command, now)
    case 'hold':
      return hold(record, command, now)
    case 'claim':
      return claim(record, command, now)
    case 'requeue':
      return requeue(record, command, now)
    case 'close':
      return close(record, command, now, made)
    case 'extendHold':
      return extendHold(record, command, now)
    case 'archived':
      return archived(record, command)
  }
}

function reduceCoding(
  record: Subscription | null,
  command: CodingCommand,
  now: number,
  made: UsageRecord[] | null,
): Step<Answer<CodingCommand['op']>> {
  const ledger = CodingLedger.open(record, now, made)
  if (!ledger) return { record, answer: withoutAccount(record, command, now) }
  const answer = applyToLedger(ledger, command, now)
  return { record: ledger.isChanged ? ledger.toRecord(now) : record, answer }
}
