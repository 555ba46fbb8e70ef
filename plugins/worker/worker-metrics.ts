/** Metrics of task runs and sweeps. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { ClaimOutcome } from '../../src/tasks/claim-tasks.ts'
import type { Concluded } from '../../src/tasks/run-outcome.ts'
import type { OpenTasks } from '../../src/backends/store/task-store.ts'
import type { Task } from '../../src/domain/task.ts'
import { REASONS } from '../../src/tasks/recovery-sweeps.ts'
import type { Slots } from './worker-slots.ts'

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
  const registers = [registry]
  const queued = new Histogram({
    name: 'tollgate_task_queue_seconds',
    help: 'From the creation of a task to the start of its first run.',
    labelNames: ['kind', 'engine'],
    buckets: BUCKETS,
    registers,
  })
  const ran = new Histogram({
    name: 'tollgate_task_run_seconds',
    help: 'Duration of a run.',
    labelNames: ['kind', 'engine', 'outcome'],
    buckets: BUCKETS,
    registers,
  })
  const swept = new Counter({
    name: 'tollgate_tasks_swept_total',
    help: 'Gaps closed by a sweep; each is a near miss.',
    labelNames: ['reason'],
    registers,
  })
  // A series that began with its first pass would hide how much that pass repaired.
  for (const reason of REASONS) swept.inc({ reason }, 0)
  const claims = new Counter({
    name: 'tollgate_task_claims_total',
    help: 'Claims of tasks, where a message named the plan or by a query for due plans.',
    labelNames: ['by', 'outcome'],
    registers,
  })
  const republished = new Counter({
    name: 'tollgate_task_messages_repeated_total',
    help: 'Messages published again about tasks that stayed ready.',
    registers,
  })
  new Gauge({ name: 'tollgate_task_slots', help: 'Tasks that this worker runs at once.', registers }).set(slots.most)
  new Gauge({
    name: 'tollgate_task_slots_busy',
    help: 'Tasks that this worker runs now.',
    registers,
    collect() {
      this.set(slots.busy())
    },
  })
  const tasks = new Gauge({ name: 'tollgate_tasks', help: 'Tasks that are not final.', labelNames: ['state', 'kind'], registers })
  const oldest = new Gauge({
    name: 'tollgate_task_oldest_seconds',
    help: 'Age of the oldest task that is not final; of one that settles, since its outcome is known.',
    labelNames: ['state', 'kind'],
    registers,
  })
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
