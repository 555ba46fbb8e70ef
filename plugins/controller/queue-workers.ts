/** Workers of one queue: take a name, reconcile it, come back to it when its time has come or it failed. */
import type { FastifyBaseLogger } from 'fastify'
import { Unavailable } from '../../src/domain/errors.ts'
import type { ControllerMetrics, Result } from './controller-metrics.ts'
import type { Queue } from './work-queue.ts'

type Working = {
  name: string
  queue: Queue
  count: number
  /** One pass; resolves to when the name must be looked at again though nothing changes, or null. */
  reconcile: (name: string) => Promise<number | null>
  /** The store was away: says so where it can be seen. */
  unreachable: (name: string) => Promise<void>
  /** Called after each pass. */
  rested: () => void
  metrics: ControllerMetrics
  clock: () => number
  log: FastifyBaseLogger
}

/** Starts `count` workers. Resolves when the queue was stopped and the last pass ended. */
export async function startWorkers(working: Working): Promise<void> {
  working.metrics.workers(working.name, working.count)
  await Promise.all(Array.from({ length: working.count }, () => run(working)))
}

async function run(working: Working): Promise<void> {
  const { queue } = working
  for (let name = await queue.take(); name !== null; name = await queue.take()) {
    const isGood = await pass(name, working)
    queue.done(name, isGood)
    working.rested()
  }
}

async function pass(name: string, { name: controller, queue, reconcile, unreachable, metrics, clock, log }: Working): Promise<boolean> {
  let result: Result = 'success'
  const ended = metrics.began(controller)
  try {
    const requeueAt = await reconcile(name)
    if (requeueAt === null) return true
    queue.addAfter(name, Math.max(0, requeueAt - clock()))
    result = 'requeue_after'
    return true
  } catch (err) {
    result = 'error'
    const retryInMs = Math.round(queue.retry(name))
    if (err instanceof Unavailable) log.warn({ err, controller, name, retryInMs }, 'a resource waits for its store or source')
    else log.error({ err, controller, name, retryInMs }, 'a resource could not be reconciled')
    if (err instanceof Unavailable && err.backend === 'store') await unreachable(name).catch(() => {})
    return false
  } finally {
    ended(result)
  }
}
