/** Invariants of media accounts: how holds and runs may change, limits, and that everything burned was charged to a task. */
import { entriesOf } from '../../../src/domain/subscription/holds.ts'
import type { Hold, MediaAccount, Subscription } from '../../../src/domain/subscription/subscription.ts'
import { FINAL, type Task } from '../../../src/domain/task.ts'
import { chargeOf } from '../../../src/verify/task-invariants.ts'
import type { PendingCommand, Step } from '../scheduler.ts'
import type { Report, Seen } from '../invariant-checker.ts'

/** How far the clocks of two processes may differ. */
const SKEW_MS = 5_000

/** History of the hold of a task. `period`: the one of its first hold. */
type Held = { subscription: string; period: number; closed: number }

export function openMediaAccountChecks(seen: Seen, report: Report, now: () => number) {
  const held = new Map<string, Held>()

  function changed(before: Subscription | null, after: Subscription, { commands }: Step): void {
    if (!after.media) return
    const [old, holds] = [new Map(entriesOf(before?.media?.holds)), new Map(entriesOf(after.media.holds))]
    for (const [id, hold] of holds) {
      const first = old.get(id)
      const reopened = first !== undefined && first.at !== hold.at && has('close', id, commands)
      if (reopened) closed(after, id, commands)
      if (first && !reopened) checkUnchanged(id, first, hold, commands)
      else checkOpened(after, id, hold, commands)
    }
    for (const id of old.keys()) if (!holds.has(id)) closed(after, id, commands)
    if (before?.media) room(before.media, after, after.media, commands)
    balance(after.id)
  }

  function checkOpened({ id: subscription }: Subscription, id: string, hold: Hold, commands: PendingCommand[]): void {
    const task = seen.tasks.get(id)
    const earlier = held.get(id)
    if (!has('hold', id, commands)) {
      report(`a hold of task ${id} appeared without a command`)
    }
    if (!task) report(`${subscription} holds ${hold.amount} for task ${id}, which is not stored`)
    else if (task.estimatedCost !== hold.amount && !(task.extendableTo !== undefined && hold.amount < task.estimatedCost && FINAL.includes(task.state))) {
      report(`${subscription} holds ${hold.amount} for task ${id}, whose quote is ${task.estimatedCost}`)
    }
    if (hold.readyAt > now() - SKEW_MS) report(`task ${id} is ready at once, but a worker whose clock is behind does not see it`)
    // The record drops closed holds, so a late request may hold again for a final task; a sweep releases that.
    if (!earlier) held.set(id, { subscription, period: hold.period, closed: 0 })
    else if (task && !FINAL.includes(task.state) && task.state !== 'settling') {
      report(`the hold of task ${id} was closed and opened again while it is ${task.state}`)
    }
  }

  function checkUnchanged(id: string, before: Hold, after: Hold, commands: PendingCommand[]): void {
    const waits = commands.some(({ command }) => command.op === 'requeue' && command.task === id && command.epoch === before.epoch)
    if (before.amount !== after.amount && !isExtended(id, before, after, commands)) {
      report(`the hold of task ${id} was ${before.amount} and is ${after.amount}`)
    }
    if (before.period !== after.period || before.kind !== after.kind || before.keyId !== after.keyId || (before.at !== after.at && !waits)) {
      report(`the hold of task ${id} changed from ${JSON.stringify(before)} to ${JSON.stringify(after)}`)
    }
    if (after.epoch < before.epoch) report(`the epoch of task ${id}'s hold went back from ${before.epoch} to ${after.epoch}`)
    const begun = after.run !== null && after.run.claim !== before.run?.claim
    if (begun && after.epoch <= before.epoch) report(`task ${id} was claimed again without a new epoch`)
    if (before.run !== null && after.run?.claim !== before.run.claim && !waits) {
      report(`the run of task ${id} at epoch ${before.epoch} was removed by another command than its requeue`)
    }
  }

  /** By the run that has the task, up to what its quote allows. */
  function isExtended(id: string, before: Hold, after: Hold, commands: PendingCommand[]): boolean {
    const isAsked = commands.some(({ command }) => command.op === 'extendHold' && command.task === id && command.amount === after.amount && command.epoch === before.epoch)
    return isAsked && before.run !== null && after.amount > before.amount && after.amount <= (seen.tasks.get(id)?.extendableTo ?? 0)
  }

  function closed(record: Subscription, id: string, commands: PendingCommand[]): void {
    const one = held.get(id)
    if (one) one.closed++
    if (!has('close', id, commands)) {
      report(`the hold of task ${id} disappeared without a close`)
    }
    const task = seen.tasks.get(id)
    if (task && !FINAL.includes(task.state) && task.state !== 'settling') {
      report(`${record.id} closed the hold of task ${id}, which is ${task.state}`)
    }
  }

  /** A record was healed: what was held in periods ahead counts in the running one. */
  function healed({ id, media }: Subscription): void {
    for (const one of held.values()) if (one.subscription === id && media) one.period = Math.min(one.period, media.period.n)
  }

  /** Limits are enforced at the time of the write, as they are then. */
  function room(old: MediaAccount, after: Subscription, now: MediaAccount, commands: PendingCommand[]): void {
    const { media } = after.terms
    if (!media || commands.some(({ command }) => command.op === 'applyPlan')) return
    const running = (account: MediaAccount) => [...entriesOf(account.holds)].filter(([, { run }]) => run !== null).length
    if (running(now) > running(old) && running(now) > media.maxConcurrentTasks) {
      report(`${running(now)} tasks of ${after.id} run, where ${media.maxConcurrentTasks} may`)
    }
    if (now.period.n < old.period.n) report(`the period of ${after.id} went back from ${old.period.n} to ${now.period.n}`)
    const left = (account: MediaAccount, n: number) => {
      const period = [...account.past, account.period].find((one) => one.n === n)
      const sum = [...entriesOf(account.holds)].reduce((all, [, hold]) => all + (hold.period === n ? hold.amount : 0), 0)
      return period ? period.allowance - period.burned - sum : 0
    }
    const [first, then] = [now.period.n === old.period.n ? left(old, old.period.n) : now.period.allowance, left(now, now.period.n)]
    if (then < 0 && then < first) report(`${after.id} gave away ${-then} more than its allowance`)
  }

  /** Every period burned exactly the charges of its tasks whose hold is closed. */
  function balance(id: string): void {
    const record = seen.records.get(id)
    if (!record?.media) return
    for (const period of [...record.media.past, record.media.period]) {
      const paid = [...held].filter(([, one]) => one.subscription === id && one.period === period.n && one.closed > 0)
      const charged = paid.reduce((all, [task]) => all + (chargeOf(seen.tasks.get(task) ?? NOTHING) ?? 0), 0)
      if (charged !== period.burned) {
        report(`period ${period.n} of ${id} burned ${period.burned}, but the tasks that it paid for were charged ${charged}`)
      }
    }
  }

  /** Called after a task changed: its hold is closed before it is final. */
  function ended(task: Task): void {
    if (FINAL.includes(task.state) && task.state !== 'rejected' && held.get(task.id)?.closed === 0) {
      report(`task ${task.id} is ${task.state}, and its hold is not closed`)
    }
    balance(task.subscription)
  }

  return { changed, ended, healed }
}

/** Whether the commands of a write close or make the hold of this task. One batch may have both. */
function has(op: 'close' | 'hold', id: string, commands: PendingCommand[]): boolean {
  return commands.some(({ command }) => command.op === op && command.task === id)
}

const NOTHING: Pick<Task, 'outcome' | 'estimatedCost'> = { outcome: null, estimatedCost: 0 }
