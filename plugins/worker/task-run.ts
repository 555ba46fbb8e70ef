/** One run of a claimed task: renews its lease while the engine works, then records the outcome. */
import type { FastifyBaseLogger } from 'fastify'
import type { Control } from '../../src/backends/engines/engine.ts'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { runEngine, type EngineContext } from '../../src/tasks/run-engine.ts'
import { conclude, forgiveLostLease, rememberJob, type Concluded, type RunOutcome } from '../../src/tasks/run-outcome.ts'
import { traced, type Span } from '../../src/telemetry/tracing.ts'
import { taskLogFields, type Task } from '../../src/domain/task.ts'

const STORE_RETRY_MS = { first: 500, longest: 5_000 }
/** How often a run looks whether its task was canceled: a provider's job and a process cost until they are stopped. */
const WATCH_MS = 1000
/** For so many leases storing media and the outcome of a run is retried. */
const STORE_LEASES = 10

type Why = 'lost' | 'canceled' | 'stopping'

/** Why a run is aborted. A job of a provider is worth resuming, unless the task was canceled. */
export class Cut extends Error {
  readonly why: Why
  constructor(why: Why) {
    super(why)
    this.why = why
  }
}

export type TaskRunContext = {
  tasks: TaskContext
  media: Omit<EngineContext, 'persist'>
  leaseMs: number
  /** Called with the queue time and duration of a run. */
  ran(task: Task, concluded: Concluded, queuedMs: number, ranMs: number): void
  /** True during shutdown: then an unavailable store is not retried. */
  stopping: () => boolean
  log: FastifyBaseLogger
}

/** Runs a task to its end, or until `cut` is aborted with a `Cut`. Rejects when the outcome cannot be recorded: then the lease expires. */
export function run(context: TaskRunContext, task: Task, cut: AbortController): Promise<void> {
  const attributes = {
    'tollgate.task.id': task.id,
    'tollgate.task.kind': task.kind,
    'tollgate.task.attempt': task.attempts,
    'tollgate.tenant': task.tenant,
  }
  return traced(`run ${task.kind}`, { kind: 'consumer', parent: task.traceparent ?? null, attributes }, (span) =>
    runClaimed(context, task, cut, span),
  )
}

async function runClaimed(context: TaskRunContext, task: Task, cut: AbortController, span: Span): Promise<void> {
  const { tasks, leaseMs, log } = context
  const startedMs = tasks.clock()
  const lease = keepLease(context, task, cut)
  try {
    const control = {
      signal: cut.signal,
      progress: lease.progress,
      job: jobOf(context, task, cut),
      idempotencyKey: `${task.id}:${task.attempts}`,
    }
    const patience = { clock: tasks.clock, patienceMs: STORE_LEASES * leaseMs }
    const persist = <T>(write: () => Promise<T>) => persistently(write, { ...patience, stopping: () => cut.signal.aborted })
    const made = await runEngine({ ...context.media, persist }, task, control).catch((error: unknown): RunOutcome | 'lost' => {
      if (cut.signal.reason instanceof Cut) return cut.signal.reason.why === 'stopping' ? { outcome: 'handed_back' } : 'lost'
      if (error instanceof Unavailable) {
        log.warn({ event: 'task_run_unavailable', err: error, ...taskLogFields(task) }, 'backend unavailable during a run, repeating it')
        return { outcome: 'unavailable' }
      }
      log.error({ event: 'task_run_failed', err: error, ...taskLogFields(task) }, 'task run failed')
      return { outcome: 'failed', code: 'internal', retryable: true }
    })
    if (made === 'lost') return
    const concluded = await persistently(() => conclude(tasks, task, made), { ...patience, stopping: context.stopping })
    const durationMs = tasks.clock() - startedMs
    span.set({ 'tollgate.task.outcome': concluded.outcome })
    if (made.outcome === 'failed') span.fail(made.code)
    context.ran(task, concluded, (task.startedAt ?? startedMs) - task.createdAt, durationMs)
    log.info({ ...taskLogFields(task), kind: task.kind, outcome: concluded.outcome, attempt: task.attempts, durationMs }, 'task ran')
  } finally {
    lease.stop()
  }
}

/** The provider's job of a task. A run that may not remember one has lost its task. */
function jobOf({ tasks }: TaskRunContext, task: Task, cut: AbortController): Control['job'] {
  return {
    id: task.job,
    engine: task.jobEngine ?? undefined,
    async remember(id, engine) {
      if ((await rememberJob(tasks, task, { job: id, jobEngine: engine })) === 'lost') throw await abortLost(tasks, task, cut)
    },
  }
}

/** Renews the lease of a run with its progress until stopped; aborts `cut` when the lease is lost, or the task canceled. */
function keepLease(
  { tasks, leaseMs }: TaskRunContext,
  task: Task,
  cut: AbortController,
): { progress(percent: number): void; stop(): void } {
  let reached = task.progress
  async function renew(): Promise<void> {
    const renewed = await tasks.store.renewTask(task.id, task.epoch, reached, tasks.clock() + leaseMs)
    if (renewed === 'lost') await abortLost(tasks, task, cut)
  }
  async function watch(): Promise<void> {
    const now = await tasks.store.task(task.tenant, task.id)
    if (now?.outcome?.outcome === 'canceled') cut.abort(new Cut('canceled'))
  }
  // A store that is away is asked again.
  const loops = [periodicTask(leaseMs / 3, renew, () => {}), periodicTask(WATCH_MS, watch, () => {})]
  for (const loop of loops) void loop.start()
  // They do not keep the process alive, and a run must: a stop waits for it, to hand it back.
  const alive = setInterval(() => {}, leaseMs)
  return {
    progress(percent) {
      reached = percent
    },
    stop() {
      clearInterval(alive)
      for (const loop of loops) void loop.cancel()
    },
  }
}

/** Aborts a run whose task is no longer its own: canceled by the client, or taken by another run. Returns the reason. */
async function abortLost(tasks: TaskContext, task: Task, cut: AbortController): Promise<Cut> {
  const now = await tasks.store.task(task.tenant, task.id).catch(() => null)
  cut.abort(new Cut(now?.outcome?.outcome === 'canceled' ? 'canceled' : 'lost'))
  if (now)
    await forgiveLostLease(tasks, now).catch((err: unknown) =>
      tasks.log.warn({ event: 'lost_lease_counted', err, ...taskLogFields(task) }, 'lost lease of a live worker stays counted'),
    )
  return cut.signal.reason as Cut
}

type Patience = { clock: () => number; patienceMs: number; stopping: () => boolean }

/**
 * Repeats a write after growing pauses, so that a short outage of a backend does not discard finished media. Renewals keep the lease
 * meanwhile.
 */
async function persistently<T>(write: () => Promise<T>, { clock, patienceMs, stopping }: Patience): Promise<T> {
  const sinceMs = clock()
  for (let pauseMs = STORE_RETRY_MS.first; ; pauseMs = Math.min(STORE_RETRY_MS.longest, 2 * pauseMs)) {
    try {
      return await write()
    } catch (error) {
      if (!(error instanceof Unavailable) || stopping() || clock() - sinceMs > patienceMs) throw error
      await new Promise((resolve) => setTimeout(resolve, pauseMs))
    }
  }
}
