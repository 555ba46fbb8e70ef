/** Controller metrics (reconciles, work queues), under the names of controller-runtime so that its dashboards and alerts work. */
import type { Registry } from 'prom-client'
import type { Queue, QueueObserver } from './work-queue.ts'
import { metersOf } from '../../src/telemetry/metrics.ts'

export type Result = 'success' | 'requeue_after' | 'error'

export type ControllerMetrics = {
  /** Metrics of one queue; `depth` is called at each scrape, and null counts as empty. */
  queue(name: string, depth: () => Pick<Queue, 'depth'> | null): QueueObserver
  /** Sets the maximum of concurrent reconciliations. */
  setWorkers(controller: string, count: number): void
  /** Counts a reconciliation from now until the returned function is called. */
  reconcileStarted(controller: string): (result: Result) => void
  /** Time from the creation or change of an ApiKey until it is ready. */
  keyReady(seconds: number): void
}

const RECONCILE_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]
/** Of a queue, which has the name of its controller. */
const LABELS = ['name', 'controller']
const QUEUE_BUCKETS = [1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 100]

/** Registers the metrics. Throws when they are registered already. */
export function controllerMetrics(registry: Registry): ControllerMetrics {
  const { counter, gauge, gaugedBy, histogram } = metersOf(registry)
  const reconciles = counter('controller_runtime_reconcile_total', 'Reconciliations.', 'controller', 'result')
  const errors = counter('controller_runtime_reconcile_errors_total', 'Reconciliations that failed.', 'controller')
  const times = histogram('controller_runtime_reconcile_time_seconds', 'Duration of a reconciliation.', RECONCILE_BUCKETS, 'controller')
  const active = gauge('controller_runtime_active_workers', 'Reconciliations in progress.', 'controller')
  const maxConcurrent = gauge('controller_runtime_max_concurrent_reconciles', 'Maximum of concurrent reconciliations.', 'controller')
  gaugedBy('workqueue_depth', 'Names waiting in the queue.', LABELS, (gauge) => {
    for (const [name, queue] of queues) gauge.set({ name, controller: name }, queue()?.depth() ?? 0)
  })
  const queues = new Map<string, () => Pick<Queue, 'depth'> | null>()
  const inProgress = workInProgress(registry)
  const adds = counter('workqueue_adds_total', 'Names added.', ...LABELS)
  const waits = histogram('workqueue_queue_duration_seconds', 'Time that a name waited in the queue.', QUEUE_BUCKETS, ...LABELS)
  const works = histogram('workqueue_work_duration_seconds', 'Duration of the work on a name.', QUEUE_BUCKETS, ...LABELS)
  const retries = counter('workqueue_retries_total', 'Names queued again after a failure.', ...LABELS)
  const ready = histogram(
    'tollgate_key_ready_seconds',
    'Time from the creation or change of an ApiKey until it is ready.',
    RECONCILE_BUCKETS,
  )
  return {
    queue(name, depth) {
      const labels = { name, controller: name }
      queues.set(name, depth)
      inProgress.addQueue(name)
      return { added: () => adds.inc(labels), taken: (seconds) => waits.observe(labels, seconds), retried: () => retries.inc(labels) }
    },
    setWorkers: (name, count) => maxConcurrent.set({ controller: name }, count),
    reconcileStarted(name) {
      const finish = inProgress.start(name)
      active.inc({ controller: name })
      return (result) => {
        const seconds = finish()
        active.dec({ controller: name })
        reconciles.inc({ controller: name, result })
        if (result === 'error') errors.inc({ controller: name })
        times.observe({ controller: name }, seconds)
        works.observe({ name, controller: name }, seconds)
      }
    },
    keyReady: (seconds) => ready.observe(seconds),
  }
}

/** Gauges of the work in progress, computed at each scrape. `start` returns a function that ends one item of work and returns its duration in seconds. */
function workInProgress(registry: Registry): { addQueue(queue: string): void; start(queue: string): () => number } {
  const items = new Map<string, Set<() => number>>()
  const gauge = (name: string, help: string, of: (seconds: number[]) => number) =>
    metersOf(registry).gaugedBy(name, help, LABELS, (gauge) => {
      for (const [queue, ages] of items) gauge.set({ name: queue, controller: queue }, of([...ages].map((age) => age())))
    })
  gauge('workqueue_unfinished_work_seconds', 'Sum of the durations of the work in progress.', (seconds) =>
    seconds.reduce((sum, one) => sum + one, 0),
  )
  gauge('workqueue_longest_running_processor_seconds', 'Duration of the oldest work in progress.', (seconds) => Math.max(0, ...seconds))
  return {
    addQueue: (queue) => void items.set(queue, new Set()),
    start(queue) {
      const startMs = performance.now()
      const age = () => (performance.now() - startMs) / 1000
      items.get(queue)?.add(age)
      return () => {
        items.get(queue)?.delete(age)
        return age()
      }
    },
  }
}
