/** The media account from write to write: holds open and close, runs begin and end, and all that is burned was charged to a task. */
import type { Hold, MediaAccount, Subscription } from '../../../src/domain/subscription/subscription.ts'
import { FINAL, type Task } from '../../../src/domain/task.ts'
import { chargeOf } from '../../../src/verify/task-invariants.ts'
import type { Asked, Step } from '../scheduler.ts'
import type { Say, Seen } from '../witness.ts'

/** What became of the hold of a task. `period`: the one that paid for its first hold. */
type Held = { subscription: string; period: number; closed: number }

export function openLedger(seen: Seen, say: Say) {
  const held = new Map<string, Held>()

  function moved(before: Subscription | null, after: Subscription, { asked }: Step): void {
    if (!after.media) return
    const [old, now] = [before?.media?.holds ?? {}, after.media.holds]
    for (const [id, hold] of Object.entries(now)) {
      const first = old[id]
      if (first) kept(id, first, hold, asked)
      else opened(after, id, hold, asked)
    }
    for (const id of Object.keys(old)) if (!now[id]) closed(after, id, asked)
    if (before?.media) room(before.media, after, after.media, asked)
    balance(after.id)
  }

  function opened({ id: subscription }: Subscription, id: string, hold: Hold, asked: Asked[]): void {
    const task = seen.tasks.get(id)
    const earlier = held.get(id)
    if (!asked.some(({ command }) => command.op === 'hold' && command.task === id)) {
      say(`a hold of task ${id} appeared that nobody asked for`)
    }
    if (!task) say(`${subscription} holds ${hold.amount} for task ${id}, which is not stored`)
    else if (task.estimatedCost !== hold.amount) {
      say(`${subscription} holds ${hold.amount} for task ${id}, whose quote is ${task.estimatedCost}`)
    }
    // The record forgets a hold when it closes it. A request that was late holds again for a task which is over; a sweep gives that back.
    if (!earlier) held.set(id, { subscription, period: hold.period, closed: 0 })
    else if (task && !FINAL.includes(task.state) && task.state !== 'settling') {
      say(`the hold of task ${id} was closed and opened again while it is ${task.state}`)
    }
  }

  function kept(id: string, before: Hold, after: Hold, asked: Asked[]): void {
    if (before.amount !== after.amount || before.period !== after.period || before.kind !== after.kind || before.keyId !== after.keyId) {
      say(`the hold of task ${id} changed from ${JSON.stringify(before)} to ${JSON.stringify(after)}`)
    }
    if (after.epoch < before.epoch) say(`the epoch of task ${id}'s hold went back from ${before.epoch} to ${after.epoch}`)
    const begun = after.run !== null && after.run.claim !== before.run?.claim
    if (begun && after.epoch <= before.epoch) say(`task ${id} was claimed again without a new epoch`)
    const waits = asked.some(({ command }) => command.op === 'requeue' && command.task === id && command.epoch === before.epoch)
    if (before.run !== null && after.run?.claim !== before.run.claim && !waits) {
      say(`the run of task ${id} at epoch ${before.epoch} was taken from it by a stranger`)
    }
  }

  function closed(record: Subscription, id: string, asked: Asked[]): void {
    const one = held.get(id)
    if (one) one.closed++
    if (!asked.some(({ command }) => command.op === 'close' && command.task === id)) {
      say(`the hold of task ${id} went away without being closed`)
    }
    const task = seen.tasks.get(id)
    if (task && !FINAL.includes(task.state) && task.state !== 'settling') {
      say(`${record.id} closed the hold of task ${id}, which is ${task.state}`)
    }
  }

  /** What a limit refuses is refused at the moment of the write, under the limits of that moment. */
  function room(old: MediaAccount, after: Subscription, now: MediaAccount, asked: Asked[]): void {
    const { media } = after.terms
    if (!media || asked.some(({ command }) => command.op === 'applyPlan')) return
    const running = (account: MediaAccount) => Object.values(account.holds).filter(({ run }) => run !== null).length
    if (running(now) > running(old) && running(now) > media.maxConcurrentTasks) {
      say(`${running(now)} tasks of ${after.id} run, where ${media.maxConcurrentTasks} may`)
    }
    if (now.period.n < old.period.n) say(`the period of ${after.id} went back from ${old.period.n} to ${now.period.n}`)
    const left = (account: MediaAccount, n: number) => {
      const period = [...account.past, account.period].find((one) => one.n === n)
      const sum = Object.values(account.holds).reduce((all, hold) => all + (hold.period === n ? hold.amount : 0), 0)
      return period ? period.allowance - period.burned - sum : 0
    }
    const [first, then] = [now.period.n === old.period.n ? left(old, old.period.n) : now.period.allowance, left(now, now.period.n)]
    if (then < 0 && then < first) say(`${after.id} gave away ${-then} more than its allowance`)
  }

  /** Every period burned just what the tasks were charged that it paid for, and whose hold is closed. */
  function balance(id: string): void {
    const record = seen.records.get(id)
    if (!record?.media) return
    for (const period of [...record.media.past, record.media.period]) {
      const paid = [...held].filter(([, one]) => one.subscription === id && one.period === period.n && one.closed > 0)
      const charged = paid.reduce((all, [task]) => all + (chargeOf(seen.tasks.get(task) ?? NOTHING) ?? 0), 0)
      if (charged !== period.burned) {
        say(`period ${period.n} of ${id} burned ${period.burned}, but the tasks that it paid for were charged ${charged}`)
      }
    }
  }

  /** A task that was changed: its money moved before it was final. */
  function ended(task: Task): void {
    if (FINAL.includes(task.state) && task.state !== 'rejected' && held.get(task.id)?.closed === 0) {
      say(`task ${task.id} is ${task.state}, and its hold is not closed`)
    }
    balance(task.subscription)
  }

  return { moved, ended }
}

const NOTHING: Pick<Task, 'outcome' | 'estimatedCost'> = { outcome: null, estimatedCost: 0 }
