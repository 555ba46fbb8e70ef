/** Metrics of task runs and sweeps. */
import type { Registry } from 'prom-client'
import type { ClaimOutcome } from '../../src/tasks/claim-tasks.ts'
import type { Concluded } from '../../src/tasks/run-outcome.ts'
import type { OpenTasks } from '../../src/backends/store/task-store.ts'
import type { Task } from '../../src/domain/task.ts'
import { REASONS } from '../../src/tasks/recovery-sweeps.ts'
import type { Slots } from './worker-slots.ts'
import { metersOf } from '../../src/telemetry/metrics.ts'

const BUCKETS = [0.1, 0.5, 2, 10, 60, 300, 1800]

export type WorkerMetrics = {
  ran(task: Task, concluded: Concluded, queuedMs: number, ranMs: number): void
  claimed(by: 'message' | 'query', outcome: ClaimOutcome): void
  swept(reason: string, count: number): void
  republished(count: number): void
  open(counts: OpenTasks[]): void
}

/** Registers the metrics. `engineOf` returns the engine of a kind at present; `clock`: epoch milliseconds. */
export function workerMetrics(
  registry: Registry,
  engineOf: (kind: string) => string,
  slots: Pick<Slots, 'most' | 'busy'>,
  clock: () => number,
): WorkerMetrics {
  const { counter, gauge, gaugedBy, histogram } = metersOf(registry)
  const queued = histogram(
    'tollgate_task_queue_seconds',
    'From the creation of a task to the start of its first run.',
    BUCKETS,
    'kind',
    'engine',
  )
  const ran = histogram('tollgate_task_run_seconds', 'Duration of a run.', BUCKETS, 'kind', 'engine', 'outcome')
  const swept = counter('tollgate_tasks_swept_total', 'Gaps closed by a sweep; each is a near miss.', 'reason')
  // A series that began with its first pass would hide how much that pass repaired.
  for (const reason of REASONS) swept.inc({ reason }, 0)
  const claims = counter(
    'tollgate_task_claims_total',
    'Claims of tasks, where a message named the plan or by a query for due plans.',
    'by',
    'outcome',
  )
  const republished = counter('tollgate_task_messages_repeated_total', 'Messages published again about tasks that stayed ready.')
  gauge('tollgate_task_slots', 'Tasks that this worker runs at once.').set(slots.most)
  gaugedBy('tollgate_task_slots_busy', 'Tasks that this worker runs now.', [], (gauge) => gauge.set(slots.busy()))
  const tasks = gauge('tollgate_tasks', 'Tasks that are not final.', 'state', 'kind')
  const oldest = gauge(
    'tollgate_task_oldest_seconds',
    'Age of the oldest task that is not final; of one that settles, since its outcome is known.',
    'state',
    'kind',
  )
  return {
    ran: (task, concluded, queuedMs, ranMs) => {
      const labels = { kind: task.kind, engine: engineOf(task.kind) }
      if (task.attempts === 1) queued.observe(labels, queuedMs / 1000)
      ran.observe({ ...labels, outcome: concluded.outcome }, ranMs / 1000)
    },
    claimed: (by, outcome) => claims.inc({ by, outcome }),
    republished: (count) => republished.inc(count),
    swept: (reason, count) => {
      if (count > 0) swept.inc({ reason }, count)
    },
    open: (counts) => {
      tasks.reset()
      oldest.reset()
      for (const { state, kind, count, oldestAt } of counts) {
        tasks.set({ state, kind }, count)
        oldest.set({ state, kind }, Math.max(0, clock() - oldestAt) / 1000)
      }
    },
  }
}
