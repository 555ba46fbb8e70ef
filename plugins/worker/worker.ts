/** Loop: who is due → claim → run → settle. Also the sweeps of tasks, holds and files. */
import { randomUUID } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import type { Listening } from '../../src/broker/broker.ts'
import { KINDS } from '../../src/generations.ts'
import { oneLook } from '../../src/look.ts'
import { make } from '../../src/tasks/make.ts'
import { claimNext, conclude, type Made } from '../../src/tasks/run.ts'
import type { Task } from '../../src/tasks/task.ts'
import { workerMetrics } from './metrics.ts'
import { startSweeps } from './sweeps.ts'

/** A worker looks by itself this often: a ring that was lost costs no more than that. */
const TICK_MS = 1_000
const STORE_RETRY_MS = 500

/** Why a run is cut off. */
class Cut extends Error {
  readonly why: 'lost' | 'stopping'
  constructor(why: 'lost' | 'stopping') {
    super(why)
    this.why = why
  }
}

export type WorkerOptions = {
  /** The kinds that this worker runs; all when absent. */
  verbs?: readonly string[]
}

async function worker(app: FastifyInstance, { verbs = KINDS }: WorkerOptions): Promise<void> {
  const { config, tasks, clock, log } = app
  const leaseMs = config.TASK_LEASE_SECONDS
  const doors = { engines: app.engines, files: app.files, clock, resultMs: config.RESULT_DAYS, log }
  const metrics = workerMetrics(app.metrics.registry, config.METRICS_TENANT)
  const running = new Map<Promise<void>, { verb: string; cut: AbortController }>()
  let stopping = false
  let bell: Listening | undefined

  /** Fills the free slots, one claim after the other. */
  const look = oneLook(
    async () => {
      while (running.size < config.WORKER_SLOTS && !stopping) {
        const next = await claimNext(tasks, claimable(), leaseMs)
        if (!next.task) {
          if (next.lookAgainAt !== null) setTimeout(() => void look(), Math.max(1, next.lookAgainAt - clock())).unref()
          return
        }
        start(next.task)
      }
    },
    (err) => log.warn({ err }, 'work will be looked for again'),
  )

  /** The verbs whose routes let one more run in this process. */
  function claimable(): string[] {
    return verbs.filter((verb) => {
      const most = app.engines.offer(verb)?.route.concurrency
      return typeof most !== 'number' || [...running.values()].filter((run) => run.verb === verb).length < most
    })
  }

  function start(task: Task): void {
    const cut = new AbortController()
    const run = runTask(task, cut)
      .catch((err: unknown) => log.warn({ err, taskId: task.id }, 'a run could not be written down; its lease will run out'))
      .finally(() => {
        running.delete(run)
        bell?.resume()
        void look()
      })
    running.set(run, { verb: task.verb, cut })
    if (running.size >= config.WORKER_SLOTS) bell?.pause()
  }

  async function runTask(task: Task, cut: AbortController): Promise<void> {
    const startedMs = clock()
    let percent = task.progress
    const renewal = setInterval(() => void renew(), leaseMs / 3)
    const renew = async () => {
      const renewed = await tasks.store.renewTask(task.id, task.epoch, percent, clock() + leaseMs).catch(() => 'unknown' as const)
      if (renewed === 'lost') cut.abort(new Cut('lost'))
    }
    const progress = (reached: number) => {
      percent = reached
    }
    try {
      const made = await make(doors, task, { signal: cut.signal, progress }).catch((error: unknown): Made | 'lost' => {
        if (cut.signal.reason instanceof Cut) return cut.signal.reason.why === 'lost' ? 'lost' : { outcome: 'handed_back' }
        log.error({ err: error, taskId: task.id }, 'a run failed on our side')
        return { outcome: 'failed', code: 'internal', retryable: true }
      })
      if (made === 'lost') return
      const concluded = await persistently(() => conclude(tasks, task, made))
      metrics.ran(task, concluded, (task.startedAt ?? startedMs) - task.createdAt, clock() - startedMs)
      log.info({ taskId: task.id, tenant: task.tenant, verb: task.verb, outcome: concluded.outcome, attempt: task.attempts, durationMs: clock() - startedMs }, 'task ran')
    } finally {
      clearInterval(renewal)
    }
  }

  /** The end of a run is worth several tries: made media is not thrown away because the store was away for a moment. Renewals keep the lease meanwhile. */
  async function persistently<T>(write: () => Promise<T>): Promise<T> {
    const sinceMs = clock()
    for (;;) {
      try {
        return await write()
      } catch (error) {
        if (stopping || clock() - sinceMs > 10 * leaseMs) throw error
        await new Promise((resolve) => setTimeout(resolve, STORE_RETRY_MS))
      }
    }
  }

  let timer: NodeJS.Timeout | undefined
  let stopSweeps = (): Promise<void> => Promise.resolve()
  app.addHook('onReady', async () => {
    bell = app.broker.listen(verbs, () => void look())
    timer = setInterval(() => void look(), TICK_MS)
    stopSweeps = startSweeps({ tasks, files: app.files, owner: randomUUID(), taskMs: config.TASK_DAYS, swept: metrics.swept, open: metrics.open, log })
    void look()
  })
  app.addHook('preClose', async () => {
    stopping = true
    clearInterval(timer)
    bell?.stop()
    // Runs under way share the time that streams get; then they are handed back and cost no attempt.
    setTimeout(() => {
      for (const { cut } of running.values()) cut.abort(new Cut('stopping'))
    }, config.SHUTDOWN_SECONDS).unref()
  })
  app.addHook('onClose', async () => {
    await Promise.allSettled(running.keys())
    await stopSweeps()
  })
}

export default fp(worker, { name: 'worker', fastify: '5.x', dependencies: ['ops'] })
