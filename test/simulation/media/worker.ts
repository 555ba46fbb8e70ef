/** A simulated worker, as `plugins/worker`: claims, runs, renews leases, concludes, sweeps. Its engine has random durations and outcomes. */
import { conclude, rememberJob, type RunOutcome } from '../../../src/tasks/run-outcome.ts'
import { openClaimLoop } from '../../../plugins/worker/claim-loop.ts'
import { openRepublisher } from '../../../src/tasks/republish-ready.ts'
import { openClaims } from '../../../src/tasks/claims-in-progress.ts'
import { openLeaseGrace } from '../../../src/tasks/lease-grace.ts'
import { sweepSubscriptions, sweepTasks, type SweepOptions } from '../../../src/tasks/recovery-sweeps.ts'
import type { Engines, Input } from '../../../src/backends/engines/engine.ts'
import { extendHold } from '../../../src/tasks/fit-hold.ts'
import { runEngine as runOperation } from '../../../src/tasks/run-engine.ts'
import { resultOf } from '../invariants/files.ts'
import { PNG, sourceEgress } from './files.ts'
import { Unavailable } from '../../../src/domain/errors.ts'
import type { Task } from '../../../src/domain/task.ts'
import type { TaskContext } from '../../../src/tasks/task-context.ts'
import type { Machine, World } from '../world.ts'
import { KINDS } from './accounts.ts'

export const LEASE_MS = 10_000
const TICK_MS = 15_000
const PATIENCE_MS = 250
const SWEEPS = { tasks: 2_000, subscriptions: 15_000 }
/** A kind that no worker takes. */
export const UNSERVED = 'music'
/** How long a task of that kind is kept. */
export const QUEUE_MS = 1_500_000

/** Options of the sweep of one process. */
export function sweepOptions(graceMs: () => number | null): SweepOptions {
  return { graceMs, queueMs: QUEUE_MS, isServed: (kind) => kind !== UNSERVED }
}

/** `slots`: concurrent runs. With 0 it only sweeps. */
export function worker(world: World, machine: Machine, slots: number): void {
  const owner = machine.process.name
  const claims = openClaims()
  let running = 0

  function start(task: Task): void {
    running++
    if (running > slots) world.checker.report(`${owner} runs ${running} tasks in ${slots} slots`)
    machine.go('run', () =>
      run(world, machine, task).finally(() => {
        // As a worker that was full, and therefore paused.
        if (running-- === slots) loop.search()
      }),
    )
  }

  const backends = machine.tasks(machine.actor('claim'))
  const loop = openClaimLoop({
    tasks: backends, claims, start, leaseMs: LEASE_MS,
    slots: { isFull: () => running >= slots, hasRoom: () => true, claimable: () => KINDS, room: () => slots - running },
    patience: () => machine.sleep(PATIENCE_MS),
    later: (ms, then) => void machine.sleep(ms).then(then),
    isStopping: () => world.recovering,
    counted() {},
  })

  async function tick(): Promise<void> {
    while (!world.recovering) {
      loop.search()
      await machine.sleep(TICK_MS + world.rng.whole(0, TICK_MS / 2))
    }
  }

  const grace = openLeaseGrace(LEASE_MS, SWEEPS.tasks)
  const republisher = openRepublisher(backends, KINDS)

  async function sweepDue(backends: TaskContext): Promise<void> {
    await sweepTasks(backends, sweepOptions(() => (grace.isDue(world.scheduler.now()) ? LEASE_MS : null)))
    await republisher.pass(world.scheduler.now())
    grace.isDue(world.scheduler.now())
  }

  async function sweep(name: 'tasks' | 'subscriptions', work: (backends: TaskContext) => Promise<unknown>): Promise<void> {
    const backends = machine.tasks(machine.actor(`sweep ${name}`))
    while (!world.recovering) {
      await machine.sleep(SWEEPS[name] + world.rng.whole(0, 500))
      const now = machine.clock()
      try {
        const isOurs = await backends.store.takeLease(`sweep-${name}`, owner, now + 5 * SWEEPS[name], now)
        if (name === 'tasks') grace.isDue(world.scheduler.now())
        if (isOurs) await work(backends)
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error
      }
    }
  }

  if (slots > 0) {
    world.broker.consume({ process: machine.process, kinds: KINDS, takes: loop.takes, received: loop.received })
    machine.go('tick', tick)
  }
  machine.go('sweep tasks', () => sweep('tasks', sweepDue))
  machine.go('sweep subscriptions', () => sweep('subscriptions', sweepSubscriptions))
}

/**
 * Begins the job of a provider for a run, in the seeds that have one, or resumes the one that the task remembers. Null once it runs; otherwise what becomes of
 * the run at once. A provider may take longer to answer than the run has its lease.
 */
export async function openJob({ hasProvider, checker, rng }: World, machine: Machine, store: Pick<TaskContext, 'store'>, task: Task): Promise<RunOutcome | 'lost' | null> {
  if (!hasProvider || task.job !== null) return null
  const stored = checker.seen.tasks.get(task.id)
  if (stored?.epoch === task.epoch && stored.job !== null) checker.report(`a second job is begun for task ${task.id}, which has ${stored.job}`)
  await machine.sleep(rng.pick([0, 500, LEASE_MS + 2_000]))
  try {
    return (await rememberJob(store, task, { job: `job-${task.epoch}`, jobEngine: 'provider' })) === 'lost' ? 'lost' : null
  } catch (error) {
    if (!(error instanceof Unavailable)) throw error
    return { outcome: 'unavailable' }
  }
}

/** Runs a task: an operation with its sources and a result in the files, by the code of a real worker. */
export async function runTask(world: World, machine: Machine, task: Task): Promise<RunOutcome> {
  const made = runEngine(world, task)
  if (task.object === 'generation' || made.outcome === 'handed_back') return made
  const engines = {
    offer: () => ({ route: { max: LIMITS, timeoutMs: 60_000 }, formats: ['png'], quote: () => ({ Job: 1000, Second: 0, Megapixel: 0 }) }),
    async run(_: unknown, { inputs }: { inputs: readonly Input[] }) {
      for (const input of inputs) await Array.fromAsync(input.read())
      const facts = { width: 1, height: 1, durationMs: null }
      return made.outcome === 'failed' ? { ...made, cause: null } : { outcome: 'made', body: Buffer.concat([PNG, Buffer.from(resultOf(task))]), contentType: 'image/png', facts, used: { Job: 1000, Second: 0, Megapixel: 0 } }
    },
  } as unknown as Engines
  const backends = machine.tasks(machine.actor(`run epoch ${task.epoch}`, { task: task.id, epoch: task.epoch }))
  const context = { ...backends, engines, egress: sourceEgress(world.files, world.scheduler), inputTimeoutMs: 10_000, persist: <T>(write: () => Promise<T>) => write() }
  const control = { signal: new AbortController().signal, progress: () => {}, job: { id: null, remember: async () => {} }, idempotencyKey: task.id }
  return runOperation(context, task, control).catch((error: unknown): RunOutcome => {
    if (!(error instanceof Unavailable)) throw error
    return { outcome: 'unavailable' }
  })
}

const LIMITS = { pixels: 1_000_000, durationMs: 60_000, bytes: 1_000_000 }

/** Random outcome of an engine; its cost may be out of range. */
function runEngine({ rng, hasProvider }: World, task: Task): RunOutcome {
  const outcome = rng.weighted({ made: 10, retryable: 4, failed: 2, handedBack: 2 })
  if (outcome === 'retryable') return { outcome: 'failed', code: 'provider_error', retryable: true, ...(hasProvider && rng.chance(0.5) && { retryAfterMs: 5_000 }) }
  if (outcome === 'failed') return { outcome: 'failed', code: 'provider_rejected', retryable: false }
  if (outcome === 'handedBack') return { outcome: 'handed_back' }
  const cost = rng.pick([task.estimatedCost, Math.floor(task.estimatedCost / 2), task.estimatedCost + 70, 0, -30])
  const facts = { contentType: 'image/png', bytes: 1, width: 1, height: 1, durationMs: null, expiresAt: task.createdAt + 1e9 }
  return { outcome: 'made', cost, result: { file: `${task.id}-${task.epoch}`, ...facts } }
}

/** The task after its sources turned out to be more than they said, or not; null: the store is unavailable. Reading them may take longer than the run has its lease. */
async function extended({ rng }: World, machine: Machine, backends: TaskContext, task: Task): Promise<Task | null> {
  if (task.extendableTo === undefined || rng.chance(0.3)) return task
  await machine.sleep(rng.pick([0, 500, LEASE_MS + 10_000]))
  return extendHold(backends, task, task.estimatedCost + rng.whole(1, 300)).catch((error: unknown) => {
    if (!(error instanceof Unavailable)) throw error
    return null
  })
}

async function run(world: World, machine: Machine, claimed: Task): Promise<void> {
  const { rng } = world
  const name = `run epoch ${claimed.epoch}`
  const backends = machine.tasks(machine.actor(name, { task: claimed.id, epoch: claimed.epoch }))
  // One in six runs never renews its lease, so that it expires and the run finishes late.
  const silent = rng.chance(0.17)
  const held = await extended(world, machine, backends, claimed)
  const task = held ?? claimed
  const atOnce = held ? await openJob(world, machine, backends, task) : ({ outcome: 'unavailable' } as const)
  let lost = false
  for (let left = rng.whole(100, silent ? 25_000 : 9_000), percent = 10; left > 0 && atOnce === null && !lost; percent += 20) {
    const pause = Math.min(left, Math.floor(LEASE_MS / 3))
    await machine.sleep(pause)
    left -= pause
    if (silent || left <= 0) continue
    lost = (await backends.store.renewTask(task.id, task.epoch, percent, machine.clock() + LEASE_MS).catch(() => 'ok')) === 'lost'
  }
  if (atOnce === 'lost' || lost) return
  const made = atOnce ?? (await runTask(world, machine, task))
  for (let tries = 0; tries < 6; tries++) {
    try {
      await conclude(backends, task, made)
      return
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      await machine.sleep(500)
    }
  }
}
