/** Sweep loops of the worker: each runs under a named lease, in one process at a time, in bounded batches. */
import type { FastifyBaseLogger } from 'fastify'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'
import { openServedElsewhere } from './served-elsewhere.ts'
import type { Files } from '../../src/backends/files/files.ts'
import { KINDS } from '../../src/domain/media-generations.ts'
import { OPERATIONS } from '../../src/domain/media-operations.ts'
import { LATE_WRITE_MS, type OpenTasks } from '../../src/backends/store/task-store.ts'
import { openRepublisher } from '../../src/tasks/republish-ready.ts'
import { openLeaseGrace } from '../../src/tasks/lease-grace.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import type { SweepTurns } from '../../src/tasks/due-tasks.ts'
import { sweepKeys, sweepSubscriptions, sweepTasks, type Swept } from '../../src/tasks/recovery-sweeps.ts'
import { allOf } from '../../src/tasks/sweep-pass.ts'

type Sweeping = {
  tasks: TaskContext
  files: Files
  owner: string
  /** Lease of a running task. */
  leaseMs: number
  /** This process is the only one of its store: an earlier one is dead. */
  isAlone: boolean
  /** Monotonic milliseconds. */
  uptime: () => number
  /** Retention of finished tasks, and of coding requests. */
  taskMs: number
  /** Retention of the event log. */
  eventMs: number
  /** How long a task may be ready without a worker that takes its kind or operation. */
  queueMs: number
  /** Whether an engine and a worker here take a kind or operation. */
  isServed: (kind: string) => boolean
  swept(reason: string, count: number): void
  republished(count: number): void
  open(counts: OpenTasks[]): void
  log: FastifyBaseLogger
}

const BATCH = 500
const MOST_BATCHES = 100
/** Length of the lease of a sweep. A process that does not hold it tries again after as many periods, so that a thousand idle workers write a few hundred leases a second. */
const LEASE_PERIODS = 5
const PERIODS = { tasks: 1_000, subscriptions: 15_000, retention: 60_000 }

/** Starts all sweep loops. Returns the function that stops them and waits for the one in progress. */
export function startSweeps({
  tasks,
  files,
  owner,
  leaseMs,
  isAlone,
  uptime,
  taskMs,
  eventMs,
  queueMs,
  isServed,
  swept,
  republished,
  open,
  log,
}: Sweeping): () => Promise<void> {
  const { store, clock } = tasks
  const grace = openLeaseGrace(leaseMs, PERIODS.tasks, isAlone ? uptime() : undefined)
  const elsewhere = openServedElsewhere()
  const turns: SweepTurns = new Map()
  const republisher = openRepublisher(tasks, [...KINDS, ...OPERATIONS])
  const sweeps = [
    every('tasks', PERIODS.tasks, () => allOf([sweepOpen(), republish()]), notSweeping, clear),
    every('subscriptions', PERIODS.subscriptions, async () => report(await sweepSubscriptions(tasks))),
    every('retention', PERIODS.retention, async () => {
      await untilDone(() => store.removeTasks(clock() - taskMs, BATCH))
      await untilDone(() => store.removeRequests(clock() - taskMs, BATCH))
      await untilDone(() => store.removeEvents(clock() - eventMs - LATE_WRITE_MS, BATCH))
      await untilDone(() => sweepKeys(store, clock() - taskMs, BATCH))
      await untilDone(() => files.sweep(clock(), BATCH))
    }),
  ]

  /** The process that sweeps exports the task gauges, also where the sweep fails; the others, and one that lost the store, clear theirs. */
  async function sweepOpen(): Promise<void> {
    const isTaken = (kind: string) => isServed(kind) || elsewhere.isServed(kind, clock())
    const graceMs = () => (grace.isDue(uptime()) ? leaseMs : null)
    // Also where no lease has expired.
    graceMs()
    try {
      report(await sweepTasks(tasks, { graceMs, queueMs, isServed: isTaken }, turns))
    } finally {
      const counts = await store.openTasks()
      elsewhere.observe(counts, clock())
      open(counts)
    }
    // The process, or the store, may have stood still within the pass.
    graceMs()
  }

  async function republish(): Promise<void> {
    republished(await republisher.pass(uptime()))
  }

  function notSweeping(): void {
    grace.isDue(uptime())
    clear()
  }

  function clear(): void {
    open([])
  }

  /** Repeats while batches come back full, so that removal keeps up with creation. */
  async function untilDone(batch: () => Promise<number>): Promise<void> {
    for (let batches = 0; batches < MOST_BATCHES && (await batch()) === BATCH; batches++) {
      await new Promise((resolve) => setImmediate(resolve))
    }
  }

  /** Archiving an ended period is routine; every other count is a gap left by a crash. */
  function report({ archived: _routine, ...counts }: Swept): void {
    for (const [reason, count] of Object.entries(counts)) swept(reason, count)
    if (Object.values(counts).some((count) => count > 0)) log.warn({ event: 'sweep_recovered', ...counts }, 'sweep recovered tasks')
  }

  /** `notOurs` is called instead of the sweep while another process holds the lease, `unknown` while the store does not say who does. */
  function every(name: string, periodMs: number, sweep: () => Promise<void>, notOurs = () => {}, unknown = () => {}): () => Promise<void> {
    let skipped = 0
    const failed = (error: unknown) => {
      unknown()
      throw error
    }
    const tick = async () => {
      if (skipped > 0) return void skipped--
      const now = clock()
      if (await store.takeLease(`sweep-${name}`, owner, now + LEASE_PERIODS * periodMs, now).catch(failed)) return sweep()
      notOurs()
      skipped = LEASE_PERIODS - 1
    }
    const task = periodicTask(periodMs, tick, (err) => log.warn({ event: 'sweep_failed', err, sweep: name }, 'sweep failed, retrying'))
    void task.start()
    return task.cancel
  }

  return async () => {
    await Promise.all(sweeps.map((stop) => stop()))
  }
}
