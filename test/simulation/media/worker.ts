/** A worker, as `plugins/worker`: looks, claims, runs, renews, concludes; and the sweeps. Its engine takes its time and has moods. */
import { claimDue, conclude, type Made } from '../../../src/tasks/claim-and-retry.ts'
import { sweepSubscriptions, sweepTasks } from '../../../src/tasks/recovery-sweeps.ts'
import type { Task } from '../../../src/domain/task.ts'
import type { Machine, World } from '../world.ts'
import { VERBS } from './accounts.ts'

export const LEASE_MS = 10_000
const TICK_MS = 2_500
const SWEEPS = { tasks: 3_000, subscriptions: 15_000 }

/** `slots`: how many runs at once. None: its engine is busy with what is not of this story, and it only sweeps. */
export function worker(world: World, machine: Machine, slots: number): void {
  const owner = machine.process.name
  let running = 0

  function start(task: Task): void {
    running++
    machine.go('run', () => run(world, machine, task).finally(() => running--))
  }

  async function look(): Promise<void> {
    const backends = machine.tasks(machine.actor('look'))
    while (!world.calm) {
      try {
        while (running < slots && !world.calm) {
          const { started } = await claimDue(backends, { verbs: VERBS, limit: slots - running, leaseMs: LEASE_MS, start })
          if (started === 0) break
        }
      } catch {
        // The store was away: look again.
      }
      await machine.nap(TICK_MS, VERBS)
    }
  }

  async function sweep(name: 'tasks' | 'subscriptions', work: typeof sweepTasks): Promise<void> {
    const backends = machine.tasks(machine.actor(`sweep ${name}`))
    while (!world.calm) {
      await machine.sleep(SWEEPS[name] + world.dice.whole(0, 500))
      const now = machine.clock()
      try {
        if (await backends.store.takeLease(`sweep-${name}`, owner, now + 5 * SWEEPS[name], now)) await work(backends)
      } catch (error) {
        if ((error as Error).name !== 'Unavailable') throw error
      }
    }
  }

  if (slots > 0) machine.go('look', look)
  machine.go('sweep tasks', () => sweep('tasks', sweepTasks))
  machine.go('sweep subscriptions', () => sweep('subscriptions', sweepSubscriptions))
}

/** What an engine makes of a task; what it says of the cost is not to be trusted. */
export function madeBy({ dice }: World, task: Task): Made {
  const mood = dice.weighted({ made: 10, tired: 4, broken: 2, drained: 2 })
  if (mood === 'tired') return { outcome: 'failed', code: 'provider_error', retryable: true }
  if (mood === 'broken') return { outcome: 'failed', code: 'provider_rejected', retryable: false }
  if (mood === 'drained') return { outcome: 'handed_back' }
  const cost = dice.pick([task.estimatedCost, Math.floor(task.estimatedCost / 2), task.estimatedCost + 70, 0, -30])
  const facts = { contentType: 'image/png', bytes: 1, width: 1, height: 1, durationMs: null, expiresAt: task.createdAt + 1e9 }
  return { outcome: 'made', cost, result: { file: `${task.id}-${task.epoch}`, ...facts } }
}

async function run(world: World, machine: Machine, task: Task): Promise<void> {
  const { dice } = world
  const name = `run epoch ${task.epoch}`
  const backends = machine.tasks(machine.actor(name, { task: task.id, epoch: task.epoch }))
  // One in six never says that it lives: its lease runs out while it works, and it comes late.
  const silent = dice.chance(0.17)
  let lost = false
  for (let left = dice.whole(100, silent ? 25_000 : 9_000), percent = 10; left > 0 && !lost; percent += 20) {
    const pause = Math.min(left, Math.floor(LEASE_MS / 3))
    await machine.sleep(pause)
    left -= pause
    if (silent || left <= 0) continue
    lost = (await backends.store.renewTask(task.id, task.epoch, percent, machine.clock() + LEASE_MS).catch(() => 'ok')) === 'lost'
  }
  const made = madeBy(world, task)
  for (let tries = 0; !lost && tries < 6; tries++) {
    try {
      await conclude(backends, task, made)
      return
    } catch (error) {
      if ((error as Error).name !== 'Unavailable') throw error
      await machine.sleep(500)
    }
  }
}
