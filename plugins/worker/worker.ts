/** Loop: message or query → claim → run → settle. Also starts the sweeps of tasks, holds and files. */
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import type { BrokerConsumer } from '../../src/backends/broker/broker.ts'
import { KINDS } from '../../src/domain/media-generations.ts'
import { OPERATIONS } from '../../src/domain/media-operations.ts'
import { isDistributed } from '../../src/config/startup-checks.ts'
import type { Message } from '../../src/domain/broker-messages.ts'
import { conclude } from '../../src/tasks/run-outcome.ts'
import { openClaims } from '../../src/tasks/claims-in-progress.ts'
import { taskLogFields, type Task } from '../../src/domain/task.ts'
import { openClaimLoop } from './claim-loop.ts'
import { workerMetrics } from './worker-metrics.ts'
import { run, type TaskRunContext } from './task-run.ts'
import { openSlots } from './worker-slots.ts'
import { startSweeps } from './sweep-loops.ts'

/** Interval of the queries that no message caused. `receiving`: while the worker is assigned messages. Otherwise it is what a lost message costs. */
const TICK_MS = { receiving: 15_000, alone: 1_000 }
/** Time that claims may take before others are begun beside them. */
const PATIENCE_MS = 250
const patience = (): Promise<void> => pause(PATIENCE_MS, undefined, { ref: false })

export type WorkerOptions = {
  /** The kinds and operations that this worker runs; all when absent. */
  kinds?: readonly string[]
}

async function worker(app: FastifyInstance, { kinds = [...KINDS, ...OPERATIONS] }: WorkerOptions): Promise<void> {
  const { config, tasks, log } = app
  const routeOf = (kind: string) => app.engines.offer(kind)?.route
  const slots = openSlots(config.WORKER_SLOTS, kinds, (kind) => routeOf(kind)?.concurrency ?? null)
  const metrics = workerMetrics(app.metrics.registry, (kind) => routeOf(kind)?.engine ?? 'none', slots, tasks.clock)
  const media = { ...tasks, egress: app.egress, inputTimeoutMs: config.INPUT_TIMEOUT_MS }
  const context: TaskRunContext = { tasks, media, leaseMs: config.TASK_LEASE_MS, ran: metrics.ran, stopping: () => stopping, log }
  const claims = openClaims()
  const later = (ms: number, then: () => void): void => void setTimeout(then, ms).unref()
  const loop = openClaimLoop({
    tasks,
    slots,
    claims,
    start,
    leaseMs: context.leaseMs,
    patience,
    later,
    isStopping: () => stopping,
    counted: metrics.claimed,
  })
  const consumers = new Map<string, BrokerConsumer>()
  const paused = new Set<string>()
  let stopping = false
  let tickAt = 0

  function start(task: Task): void {
    const unwritten = (err: unknown) =>
      log.warn({ event: 'task_run_unrecorded', err, ...taskLogFields(task) }, 'outcome of a run not recorded, its lease will expire')
    // A task claimed while the stop began is handed back at once.
    const ends = (cut: AbortController): Promise<unknown> =>
      stopping ? conclude(tasks, task, { outcome: 'handed_back' }) : run(context, task, cut)
    slots.take(
      task.kind,
      async (cut) => void (await ends(cut).catch(unwritten)),
      () => regulate(),
    )
    regulate()
  }

  /** A kind whose messages can start no run is paused. What came meanwhile is found by a query: messages may have been dropped, and other tenants wait as well. */
  function regulate(changed: Iterable<string> = consumers.keys()): void {
    for (const kind of changed) {
      const isPaused = paused.has(kind)
      if (loop.takes(kind) !== isPaused) continue
      if (isPaused) {
        paused.delete(kind)
        consumers.get(kind)?.resume()
        loop.search()
      } else {
        paused.add(kind)
        consumers.get(kind)?.pause()
      }
    }
  }

  function received(message: Message): Promise<void> {
    const decided = loop.received(message)
    regulate([message.kind])
    return decided.finally(() => regulate([message.kind]))
  }

  function tick(): void {
    const isReceiving = app.broker.health().ok && [...consumers.values()].every((consumer) => consumer.isReceiving())
    if (isReceiving && performance.now() < tickAt) return
    tickAt = performance.now() + TICK_MS.receiving * (0.75 + tasks.random() / 2)
    loop.search()
  }

  let timer: NodeJS.Timeout | undefined
  let stopSweeps = (): Promise<void> => Promise.resolve()
  app.addHook('onReady', async () => {
    for (const kind of kinds) consumers.set(kind, app.broker.consume(kind, received))
    timer = setInterval(tick, TICK_MS.alone)
    const retention = { taskMs: config.TASK_MS, eventMs: config.EVENT_MS }
    const isServed = (kind: string) => kinds.includes(kind) && routeOf(kind) !== undefined
    const process = {
      owner: randomUUID(),
      leaseMs: context.leaseMs,
      isAlone: !isDistributed(config),
      uptime: () => performance.now(),
      isServed,
    }
    const sweeping = { tasks, files: app.files, ...process, ...retention, queueMs: config.QUEUE_MS }
    stopSweeps = startSweeps({ ...sweeping, swept: metrics.swept, republished: metrics.republished, open: metrics.open, log })
    tick()
  })
  app.addHook('preClose', async () => {
    stopping = true
    clearInterval(timer)
    for (const consumer of consumers.values()) consumer.stop()
    // Runs in progress get the same shutdown time as streams, then they are handed back, which costs no attempt.
    setTimeout(slots.cutAll, config.SHUTDOWN_MS).unref()
  })
  app.addHook('onClose', async () => {
    await loop.done()
    await claims.ended()
    await slots.empty()
    await stopSweeps()
  })
}

export default fp(worker, {
  name: 'worker',
  fastify: '5.x',
  dependencies: ['ops'],
  decorators: { fastify: ['broker', 'config', 'egress', 'engines', 'files', 'metrics', 'tasks'] },
})
