/** Controller metrics (reconciles, work queues), under the names of controller-runtime so that its dashboards and alerts work. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { Queue, QueueObserver } from './work-queue.ts'

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
const QUEUE_BUCKETS = [1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 100]

/** Registers the metrics. Throws when they are registered already. */
export function controllerMetrics(registry: Registry): ControllerMetrics {
  const registers = [registry]
  const { reconciles, errors, times, active, maxConcurrent } = reconcileMetrics(registers)
  const labelNames = ['name', 'controller']
  const depths = new Gauge({
    name: 'workqueue_depth',
    help: 'Names waiting in the queue.',
    labelNames,
    registers,
    collect() {
      for (const [name, queue] of queues) this.set({ name, controller: name }, queue()?.depth() ?? 0)
    },
  })
  const queues = new Map<string, () => Pick<Queue, 'depth'> | null>()
  const inProgress = workInProgress(labelNames, registers)
  const adds = new Counter({ name: 'workqueue_adds_total', help: 'Names added.', labelNames, registers })
  const waits = new Histogram({
    name: 'workqueue_queue_duration_seconds',
    help: 'Time that a name waited in the queue.',
    labelNames,
    buckets: QUEUE_BUCKETS,
    registers,
  })
  const works = new Histogram({
    name: 'workqueue_work_duration_seconds',
    help: 'Duration of the work on a name.',
    labelNames,
    buckets: QUEUE_BUCKETS,
    registers,
  })
  const retries = new Counter({ name: 'workqueue_retries_total', help: 'Names queued again after a failure.', labelNames, registers })
  const ready = new Histogram({
    name: 'tollgate_key_ready_seconds',
    help: 'Time from the creation or change of an ApiKey until it is ready.',
    buckets: RECONCILE_BUCKETS,
    registers,
  })
  return {
    queue(name, depth) {
      const labels = { name, controller: name }
      queues.set(name, depth)
      inProgress.addQueue(name)
      depths.set(labels, 0)
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

function reconcileMetrics(registers: Registry[]) {
  const labelNames = ['controller']
  return {
    reconciles: new Counter({
      name: 'controller_runtime_reconcile_total',
      help: 'Reconciliations.',
      labelNames: ['controller', 'result'],
      registers,
    }),
    errors: new Counter({
      name: 'controller_runtime_reconcile_errors_total',
      help: 'Reconciliations that failed.',
      labelNames,
      registers,
    }),
    times: new Histogram({
      name: 'controller_runtime_reconcile_time_seconds',
      help: 'Duration of a reconciliation.',
      labelNames,
      buckets: RECONCILE_BUCKETS,
      registers,
    }),
    active: new Gauge({
      name: 'controller_runtime_active_workers',
      help: 'Reconciliations in progress.',
      labelNames,
      registers,
    }),
    maxConcurrent: new Gauge({
      name: 'controller_runtime_max_concurrent_reconciles',
      help: 'Maximum of concurrent reconciliations.',
      labelNames,
      registers,
    }),
  }
}

/** Gauges of the work in progress, computed at each scrape. `start` returns a function that ends one item of work and returns its duration in seconds. */
function workInProgress(
  labelNames: string[],
  registers: Registry[],
): { addQueue(queue: string): void; start(queue: string): () => number } {
  const items = new Map<string, Set<() => number>>()
  const gauge = (name: string, help: string, of: (seconds: number[]) => number) =>
    new Gauge({
      name,
      help,
      labelNames,
      registers,
      collect() {
        for (const [queue, ages] of items) this.set({ name: queue, controller: queue }, of([...ages].map((age) => age())))
      },
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
