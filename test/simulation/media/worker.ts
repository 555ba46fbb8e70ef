/** A simulated worker, as `plugins/worker`: polls, claims, runs, renews leases, concludes, sweeps. Its engine has random durations and outcomes. */
import { claimDue, conclude, type Made } from '../../../src/tasks/claim-and-retry.ts'
import { sweepSubscriptions, sweepTasks } from '../../../src/tasks/recovery-sweeps.ts'
import { Unavailable } from '../../../src/domain/errors.ts'
import type { Task } from '../../../src/domain/task.ts'
import type { Machine, World } from '../world.ts'
import { VERBS } from './accounts.ts'

export const LEASE_MS = 10_000
const TICK_MS = 2_500
const SWEEPS = { tasks: 3_000, subscriptions: 15_000 }

/** `slots`: concurrent runs. With 0 it only sweeps. */
export function worker(world: World, machine: Machine, slots: number): void {
  const owner = machine.process.name
  let running = 0

  function start(task: Task): void {
    running++
    machine.go('run', () => run(world, machine, task).finally(() => running--))
  }

  async function poll(): Promise<void> {
    const backends = machine.tasks(machine.actor('poll'))
    while (!world.recovering) {
      try {
        while (running < slots && !world.recovering) {
          const { started } = await claimDue(backends, { verbs: VERBS, limit: slots - running, leaseMs: LEASE_MS, start })
          if (started === 0) break
        }
      } catch {
        // The store was unavailable: poll again.
      }
      await machine.sleepUntilPublished(TICK_MS, VERBS)
    }
  }

  async function sweep(name: 'tasks' | 'subscriptions', work: typeof sweepTasks): Promise<void> {
    const backends = machine.tasks(machine.actor(`sweep ${name}`))
    while (!world.recovering) {
      await machine.sleep(SWEEPS[name] + world.rng.whole(0, 500))
      const now = machine.clock()
      try {
        if (await backends.store.takeLease(`sweep-${name}`, owner, now + 5 * SWEEPS[name], now)) await work(backends)
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error
      }
    }
  }

  if (slots > 0) machine.go('poll', poll)
  machine.go('sweep tasks', () => sweep('tasks', sweepTasks))
  machine.go('sweep subscriptions', () => sweep('subscriptions', sweepSubscriptions))
}

/** Random outcome of an engine; its cost may be out of range. */
export function runEngine({ rng }: World, task: Task): Made {
  const outcome = rng.weighted({ made: 10, retryable: 4, failed: 2, handedBack: 2 })
  if (outcome === 'retryable') return { outcome: 'failed', code: 'provider_error', retryable: true }
  if (outcome === 'failed') return { outcome: 'failed', code: 'provider_rejected', retryable: false }
  if (outcome === 'handedBack') return { outcome: 'handed_back' }
  const cost = rng.pick([task.estimatedCost, Math.floor(task.estimatedCost / 2), task.estimatedCost + 70, 0, -30])
  const facts = { contentType: 'image/png', bytes: 1, width: 1, height: 1, durationMs: null, expiresAt: task.createdAt + 1e9 }
  return { outcome: 'made', cost, result: { file: `${task.id}-${task.epoch}`, ...facts } }
}

async function run(world: World, machine: Machine, task: Task): Promise<void> {
  const { rng } = world
  const name = `run epoch ${task.epoch}`
  const backends = machine.tasks(machine.actor(name, { task: task.id, epoch: task.epoch }))
  // One in six runs never renews its lease, so that it expires and the run finishes late.
  const silent = rng.chance(0.17)
  let lost = false
  for (let left = rng.whole(100, silent ? 25_000 : 9_000), percent = 10; left > 0 && !lost; percent += 20) {
    const pause = Math.min(left, Math.floor(LEASE_MS / 3))
    await machine.sleep(pause)
    left -= pause
    if (silent || left <= 0) continue
    lost = (await backends.store.renewTask(task.id, task.epoch, percent, machine.clock() + LEASE_MS).catch(() => 'ok')) === 'lost'
  }
  const made = runEngine(world, task)
  for (let tries = 0; !lost && tries < 6; tries++) {
    try {
      await conclude(backends, task, made)
      return
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      await machine.sleep(500)
    }
  }
}
