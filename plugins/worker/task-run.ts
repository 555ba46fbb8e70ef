/** One run of a claimed task: its lease is renewed while the media is made, and what came of it is written down. */
import type { FastifyBaseLogger } from 'fastify'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { make, type EngineContext } from '../../src/tasks/run-engine.ts'
import { conclude, type Concluded, type Made } from '../../src/tasks/claim-and-retry.ts'
import type { Task } from '../../src/domain/task.ts'

const STORE_RETRY_MS = 500

/** Why a run is cut off. */
export class Cut extends Error {
  readonly why: 'lost' | 'stopping'
  constructor(why: 'lost' | 'stopping') {
    super(why)
    this.why = why
  }
}

export type TaskRunContext = {
  tasks: TaskContext
  media: EngineContext
  leaseMs: number
  /** How long a task waited and ran. */
  ran(task: Task, concluded: Concluded, queuedMs: number, ranMs: number): void
  /** The process ends: a store that is away is not waited for. */
  stopping: () => boolean
  log: FastifyBaseLogger
}

/** Runs it to its end, or until `cut` is aborted with a `Cut`. Rejects when its end could not be written down: then its lease runs out. */
export async function run(context: TaskRunContext, task: Task, cut: AbortController): Promise<void> {
  const { tasks, leaseMs, log } = context
  const startedMs = tasks.clock()
  const lease = keepLease(context, task, cut)
  try {
    const made = await make(context.media, task, { signal: cut.signal, progress: lease.progress }).catch((error: unknown): Made | 'lost' => {
      if (cut.signal.reason instanceof Cut) return cut.signal.reason.why === 'lost' ? 'lost' : { outcome: 'handed_back' }
      log.error({ err: error, taskId: task.id }, 'a run failed on our side')
      return { outcome: 'failed', code: 'internal', retryable: true }
    })
    if (made === 'lost') return
    const concluded = await persistently(() => conclude(tasks, task, made), { clock: tasks.clock, patienceMs: 10 * leaseMs, stopping: context.stopping })
    const durationMs = tasks.clock() - startedMs
    context.ran(task, concluded, (task.startedAt ?? startedMs) - task.createdAt, durationMs)
    log.info({ taskId: task.id, tenant: task.tenant, verb: task.verb, outcome: concluded.outcome, attempt: task.attempts, durationMs }, 'task ran')
  } finally {
    lease.stop()
  }
}

/** Renews the lease of a run, with how far it is, until it is stopped; aborts `cut` when the lease is lost. */
function keepLease({ tasks, leaseMs }: TaskRunContext, task: Task, cut: AbortController): { progress(percent: number): void; stop(): void } {
  let reached = task.progress
  const renew = async () => {
    const renewed = await tasks.store.renewTask(task.id, task.epoch, reached, tasks.clock() + leaseMs).catch(() => 'unknown' as const)
    if (renewed === 'lost') cut.abort(new Cut('lost'))
  }
  const timer = setInterval(() => void renew(), leaseMs / 3)
  return {
    progress(percent) {
      reached = percent
    },
    stop: () => clearInterval(timer),
  }
}

type Patience = { clock: () => number; patienceMs: number; stopping: () => boolean }

/** The end of a run is worth several tries: made media is not thrown away because the store was away for a moment. Renewals keep the lease meanwhile. */
async function persistently<T>(write: () => Promise<T>, { clock, patienceMs, stopping }: Patience): Promise<T> {
  const sinceMs = clock()
  for (;;) {
    try {
      return await write()
    } catch (error) {
      if (stopping() || clock() - sinceMs > patienceMs) throw error
      await new Promise((resolve) => setTimeout(resolve, STORE_RETRY_MS))
    }
  }
}
