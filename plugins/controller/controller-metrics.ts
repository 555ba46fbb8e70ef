/** The metrics of the controller, under the names of controller-runtime, so that dashboards and alerts made for it work. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import type { Queue, QueueObserver } from './work-queue.ts'

export type Result = 'success' | 'requeue_after' | 'error'

export type ControllerMetrics = {
  /** Metrics of one queue; `depth` is asked at each scrape. */
  queue(name: string, depth: () => Pick<Queue, 'depth'> | null): QueueObserver
  /** So many of a controller may be under way at once. */
  workers(controller: string, count: number): void
  /** A reconciliation began; what is returned tells that it ended. */
  began(controller: string): (result: Result) => void
  keyReady(seconds: number): void
}

const RECONCILE_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]
const QUEUE_BUCKETS = [1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 100]

export function controllerMetrics(registry: Registry): ControllerMetrics {
  const registers = [registry]
  const controller = ['controller']
  const reconciles = new Counter({ name: 'controller_runtime_reconcile_total', help: 'Reconciliations.', labelNames: ['controller', 'result'], registers })
  const errors = new Counter({ name: 'controller_runtime_reconcile_errors_total', help: 'Reconciliations that failed.', labelNames: controller, registers })
  const times = new Histogram({
    name: 'controller_runtime_reconcile_time_seconds',
    help: 'Duration of a reconciliation.',
    labelNames: controller,
    buckets: RECONCILE_BUCKETS,
    registers,
  })
  const active = new Gauge({ name: 'controller_runtime_active_workers', help: 'Reconciliations under way.', labelNames: controller, registers })
  const most = new Gauge({ name: 'controller_runtime_max_concurrent_reconciles', help: 'Reconciliations that may be under way at once.', labelNames: controller, registers })
  const labelNames = ['name', 'controller']
  const depths = new Gauge({
    name: 'workqueue_depth',
    help: 'Names that wait.',
    labelNames,
    registers,
    collect() {
      for (const [name, queue] of queues) this.set({ name, controller: name }, queue()?.depth() ?? 0)
    },
  })
  const queues = new Map<string, () => Pick<Queue, 'depth'> | null>()
  const underWay = workUnderWay(labelNames, registers)
  const adds = new Counter({ name: 'workqueue_adds_total', help: 'Names added.', labelNames, registers })
  const waits = new Histogram({ name: 'workqueue_queue_duration_seconds', help: 'How long a name waited.', labelNames, buckets: QUEUE_BUCKETS, registers })
  const works = new Histogram({ name: 'workqueue_work_duration_seconds', help: 'How long work on a name took.', labelNames, buckets: QUEUE_BUCKETS, registers })
  const retries = new Counter({ name: 'workqueue_retries_total', help: 'Names to be tried again.', labelNames, registers })
  const ready = new Histogram({
    name: 'tollgate_key_ready_seconds',
    help: 'From the declaration of an API key to its being usable.',
    buckets: RECONCILE_BUCKETS,
    registers,
  })
  return {
    queue(name, depth) {
      const labels = { name, controller: name }
      queues.set(name, depth)
      underWay.open(name)
      depths.set(labels, 0)
      return { added: () => adds.inc(labels), taken: (seconds) => waits.observe(labels, seconds), retried: () => retries.inc(labels) }
    },
    workers: (name, count) => most.set({ controller: name }, count),
    began(name) {
      const finish = underWay.begin(name)
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

/** Gauges of the work that has begun and not ended, computed at each scrape. `begin` returns what ends a piece of it and gives its seconds. */
function workUnderWay(labelNames: string[], registers: Registry[]): { open(queue: string): void; begin(queue: string): () => number } {
  const pieces = new Map<string, Set<() => number>>()
  const gauge = (name: string, help: string, of: (seconds: number[]) => number) =>
    new Gauge({
      name,
      help,
      labelNames,
      registers,
      collect() {
        for (const [queue, ages] of pieces) this.set({ name: queue, controller: queue }, of([...ages].map((age) => age())))
      },
    })
  gauge('workqueue_unfinished_work_seconds', 'How long all work under way has taken so far, added up.', (seconds) => seconds.reduce((sum, one) => sum + one, 0))
  gauge('workqueue_longest_running_processor_seconds', 'How long the oldest work under way has taken so far.', (seconds) => Math.max(0, ...seconds))
  return {
    open: (queue) => void pieces.set(queue, new Set()),
    begin(queue) {
      const startMs = performance.now()
      const age = () => (performance.now() - startMs) / 1000
      pieces.get(queue)?.add(age)
      return () => {
        pieces.get(queue)?.delete(age)
        return age()
      }
    },
  }
}
