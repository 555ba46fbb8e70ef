/** Queue workers of a controller: take a name, reconcile it, requeue it at its time or after a failure with back-off. */
import type { FastifyBaseLogger } from 'fastify'
import { Busy, Unavailable } from '../../src/domain/errors.ts'
import type { ControllerMetrics, Result } from './controller-metrics.ts'
import type { Queue } from './work-queue.ts'

type WorkerOptions = {
  /** Of the controller, in metrics and logs. */
  name: string
  queue: Queue
  count: number
  /** One pass; resolves to the time (epoch milliseconds) to requeue the name at, or null. */
  reconcile: (name: string) => Promise<number | null>
  /** Writes to the status of the resource that the store is unavailable. */
  reportStoreUnavailable: (name: string) => Promise<void>
  /** Called after each pass. */
  passEnded: () => void
  metrics: ControllerMetrics
  clock: () => number
  log: FastifyBaseLogger
}

/** Starts `count` workers. Resolves when the queue is stopped and the last pass has ended. */
export async function startWorkers(options: WorkerOptions): Promise<void> {
  options.metrics.setWorkers(options.name, options.count)
  await Promise.all(Array.from({ length: options.count }, () => run(options)))
}

async function run(options: WorkerOptions): Promise<void> {
  const { queue, passEnded } = options
  for (let name = await queue.take(); name !== null; name = await queue.take()) {
    const isSuccess = await pass(name, options)
    queue.done(name, isSuccess)
    passEnded()
  }
}

async function pass(
  name: string,
  { name: controller, queue, reconcile, reportStoreUnavailable, metrics, clock, log }: WorkerOptions,
): Promise<boolean> {
  let result: Result = 'success'
  const ended = metrics.reconcileStarted(controller)
  try {
    const requeueAt = await reconcile(name)
    if (requeueAt === null) return true
    queue.addAfter(name, Math.max(0, requeueAt - clock()))
    result = 'requeue_after'
    return true
  } catch (err) {
    result = 'error'
    const retryInMs = Math.round(queue.retry(name))
    if (err instanceof Unavailable)
      log.warn({ event: 'reconcile_backend_unavailable', err, controller, name, retryInMs }, 'reconcile failed: backend unavailable')
    else log.error({ event: 'reconcile_failed', err, controller, name, retryInMs }, 'reconcile failed')
    if (err instanceof Unavailable && err.backend === 'store' && !(err instanceof Busy)) await reportStoreUnavailable(name).catch(() => {})
    return false
  } finally {
    ended(result)
  }
}
