/** How the story comes to rest: nothing goes wrong any more, and one machine looks after everything until nothing is left to do. */
import { claimDue, conclude } from '../../../src/tasks/claim-and-retry.ts'
import type { Task } from '../../../src/domain/task.ts'
import { sweepSubscriptions, sweepTasks } from '../../../src/tasks/recovery-sweeps.ts'
import type { Machine, World } from '../world.ts'
import { VERBS } from './accounts.ts'
import { CAPS, DELIVERY_LEASE_MS, deliverOne } from './dispatcher.ts'
import { LEASE_MS, madeBy } from './worker.ts'

/** Seconds before each round: it takes minutes to give up leases, claims and pending tasks, and over an hour to the last delivery. */
const PAUSES = [1, 5, 10, 15, 15, 15, 15, 15, 30, 30, 65, 65, 65, 130, 200, 660, 660, 3800, 3800, 60, 60]

/** The sweeps alone find every hold whose task is over; nothing has to run for that. */
const SWEEPS_ALONE = 8
/** A hold that is younger may still be waiting for its task to be queued; and a clock may be wrong. */
const ORPHAN_MS = 80_000

export const rest = { pausesMs: PAUSES.map((seconds) => seconds * 1000), round }

async function round(world: World, machine: Machine, nth: number): Promise<void> {
  const backends = machine.tasks(machine.actor('rest'))
  await sweepTasks(backends)
  await sweepSubscriptions(backends)
  if (nth < SWEEPS_ALONE) return
  if (nth === SWEEPS_ALONE) world.witness.noOrphans(machine.clock() - ORPHAN_MS)
  for (;;) {
    const claimed: Task[] = []
    await claimDue(backends, { verbs: VERBS, limit: 1, leaseMs: LEASE_MS, start: (task) => claimed.push(task) })
    if (claimed.length === 0) break
    for (const task of claimed) await conclude(machine.tasks(machine.actor('run', { task: task.id, epoch: task.epoch })), task, madeBy(world, task))
  }
  for (;;) {
    const now = machine.clock()
    const claimed = await backends.store.claimDeliveries(now, now + DELIVERY_LEASE_MS, CAPS)
    if (claimed.length === 0) return
    for (const delivery of claimed) await deliverOne(world, machine, delivery)
  }
}
