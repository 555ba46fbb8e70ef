/** Loop: due subscriptions → claim → run → settle. Also starts the sweeps of tasks, holds and files. */
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import type { BrokerConsumer } from '../../src/backends/broker/broker.ts'
import { KINDS } from '../../src/domain/media-generations.ts'
import { OPERATIONS } from '../../src/domain/media-operations.ts'
import { isDistributed } from '../../src/config/config.ts'
import { singleFlight } from '../../src/concurrency/single-flight.ts'
import { claimDue, conclude } from '../../src/tasks/claim-and-retry.ts'
import { openClaims } from '../../src/tasks/claims-in-progress.ts'
import type { Task } from '../../src/domain/task.ts'
import { workerMetrics } from './worker-metrics.ts'
import { run, type TaskRunContext } from './task-run.ts'
import { openSlots } from './worker-slots.ts'
import { startSweeps } from './sweep-loops.ts'

/** Poll interval of the store: the most that a lost message costs. */
const TICK_MS = 1_000
/** Time that claims may take before others are begun beside them. */
const PATIENCE_MS = 250
const patience = (): Promise<void> => pause(PATIENCE_MS, undefined, { ref: false })

export type WorkerOptions = {
  /** The kinds and operations that this worker runs; all when absent. */
  verbs?: readonly string[]
}

async function worker(app: FastifyInstance, { verbs = [...KINDS, ...OPERATIONS] }: WorkerOptions): Promise<void> {
  const { config, tasks, clock, log } = app
  const routeOf = (verb: string) => app.engines.offer(verb)?.route
  const metrics = workerMetrics(app.metrics.registry, (verb) => routeOf(verb)?.engine ?? 'none', clock)
  const slots = openSlots(config.WORKER_SLOTS, verbs, (verb) => routeOf(verb)?.concurrency ?? null)
  const media = { ...tasks, egress: app.egress, inputTimeoutMs: config.INPUT_TIMEOUT_SECONDS }
  const context: TaskRunContext = { tasks, media, leaseMs: config.TASK_LEASE_SECONDS, ran: metrics.ran, stopping: () => stopping, log }
  const claims = openClaims()
  let stopping = false
  let bell: BrokerConsumer | undefined

  /** Fills the free slots. */
  const look = singleFlight(
    async () => {
      while (!slots.isFull() && !stopping) {
        // Each claim in progress may need a slot.
        const limit = slots.room() - claims.count()
        if (limit <= 0) return
        const { started, retryAt } = await claimDue(tasks, { verbs: slots.claimable(), limit, leaseMs: context.leaseMs, start, claims, patience, late: () => void look() })
        if (retryAt !== null) setTimeout(() => void look(), Math.max(1, retryAt - clock())).unref()
        if (started === 0) return
      }
    },
    (err) => log.warn({ event: 'task_claim_failed', err }, 'claiming tasks failed, retrying'),
  )

  function start(task: Task): void {
    const unwritten = (err: unknown) => log.warn({ event: 'task_run_unrecorded', err, taskId: task.id }, 'outcome of a run not recorded, its lease will expire')
    // A task claimed while the stop began is handed back at once.
    const ends = (cut: AbortController): Promise<unknown> => (stopping ? conclude(tasks, task, { outcome: 'handed_back' }) : run(context, task, cut))
    slots.take(task.verb, async (cut) => void (await ends(cut).catch(unwritten)), freed)
    if (slots.isFull()) bell?.pause()
  }

  function freed(): void {
    bell?.resume()
    void look()
  }

  let timer: NodeJS.Timeout | undefined
  let stopSweeps = (): Promise<void> => Promise.resolve()
  app.addHook('onReady', async () => {
    bell = app.broker.consume(verbs, () => void look())
    timer = setInterval(() => void look(), TICK_MS)
    const retention = { taskMs: config.TASK_DAYS, eventMs: config.EVENT_DAYS }
    const isServed = (verb: string) => verbs.includes(verb) && routeOf(verb) !== undefined
    const process = { owner: randomUUID(), leaseMs: context.leaseMs, isAlone: !isDistributed(config), uptime: () => performance.now(), isServed }
    const sweeping = { tasks, files: app.files, ...process, ...retention, queueMs: config.QUEUE_HOURS }
    stopSweeps = startSweeps({ ...sweeping, swept: metrics.swept, open: metrics.open, log })
    void look()
  })
  app.addHook('preClose', async () => {
    stopping = true
    clearInterval(timer)
    bell?.stop()
    // Runs in progress get the same shutdown time as streams, then they are handed back, which costs no attempt.
    setTimeout(slots.cutAll, config.SHUTDOWN_SECONDS).unref()
  })
  app.addHook('onClose', async () => {
    await look.done()
    await claims.ended()
    await slots.empty()
    await stopSweeps()
  })
}

export default fp(worker, { name: 'worker', fastify: '5.x', dependencies: ['ops'] })
