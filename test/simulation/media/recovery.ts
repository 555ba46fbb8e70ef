/** Recovery of the media scenario: without faults, one machine sweeps, runs and delivers until nothing is left to do. */
import { claimDue } from '../../../src/tasks/claim-tasks.ts'
import { conclude } from '../../../src/tasks/run-outcome.ts'
import type { Task } from '../../../src/domain/task.ts'
import { sweepSubscriptions, sweepTasks } from '../../../src/tasks/recovery-sweeps.ts'
import { SKEW_MS, type Machine, type World } from '../world.ts'
import { ACCOUNTS, KINDS } from './accounts.ts'
import { capsOf, DELIVERY_LEASE_MS, deliverOne } from './dispatcher.ts'
import { LEASE_MS, openJob, runTask, sweepOptions } from './worker.ts'

/** Seconds before each round: leases, claims and pending tasks expire after minutes, and the last delivery attempt is over an hour away. */
const PAUSES = [1, 5, 10, 15, 15, 15, 15, 15, 30, 30, 65, 65, 65, 130, 200, 660, 660, 200, 700, 3800, 3800, 3800, 3800, 60, 60]

/** Rounds of sweeps alone, which must release every orphaned hold. */
const SWEEPS_ALONE = 8
/** Rounds with a busy record, the last two of them with claims. */
const BUSY_ROUNDS = 10
/** A younger hold may belong to a task that is not queued yet; includes clock skew. */
const ORPHAN_MS = 80_000

export const recovery = { pausesMs: PAUSES.map((seconds) => seconds * 1000), round }

async function round(world: World, machine: Machine, nth: number): Promise<void> {
  const backends = machine.tasks(machine.actor('recovery'))
  const startedAt = machine.clock()
  if (nth === 0 && world.rng.chance(0.5)) world.busyRecord = world.rng.pick(ACCOUNTS).subscription
  if (nth === BUSY_ROUNDS) world.busyRecord = null
  await world.reconcile(backends.store, machine)
  await sweepTasks(backends, sweepOptions(() => null))
  await sweepSubscriptions(backends)
  await backends.store.storeOutboxes(startedAt, 100)
  if (nth < SWEEPS_ALONE) return
  if (nth === SWEEPS_ALONE) world.checker.checkSwept(startedAt - ORPHAN_MS, world.busyRecord)
  for (;;) {
    const claimed: Task[] = []
    // A claim that found the hold of an ended task starts nothing, and the next one is behind it.
    let isReturned = false
    await claimDue(backends, { kinds: KINDS, limit: 1, leaseMs: LEASE_MS, start: (task) => claimed.push(task), decided: (_, outcome) => (isReturned ||= outcome === 'returned') })
    if (claimed.length === 0 && !isReturned) break
    for (const task of claimed) {
      const tasks = machine.tasks(machine.actor('run', { task: task.id, epoch: task.epoch }))
      const atOnce = await openJob(world, machine, tasks, task)
      if (atOnce !== 'lost') await conclude(tasks, task, atOnce ?? (await runTask(world, machine, task)))
    }
  }
  // A gateway that thaws while the claims are made may hold more.
  world.checker.checkClaimed(startedAt - SKEW_MS, world.busyRecord)
  for (;;) {
    const now = machine.clock()
    const claimed = await backends.store.claimDeliveries(now, now + DELIVERY_LEASE_MS, capsOf(world))
    if (claimed.length === 0) return
    for (const delivery of claimed) await deliverOne(world, machine, delivery)
  }
}
