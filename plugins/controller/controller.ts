/**
 * The controller of Plans and ApiKeys: watch, work queue, reconcile, then store, Secret and status. Every step is decided by `src/domain/reconcile/` from the
 * present state, so a pass may run again at any time, and a restart with nothing to do writes nothing.
 */
import { randomBytes } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { Unavailable } from '../../src/domain/errors.ts'
import { controllerMetrics } from './controller-metrics.ts'
import { openQueue, type Queue } from './work-queue.ts'
import { addReadinessChecks } from './readiness-checks.ts'
import { openReconciler } from './reconciler.ts'
import { apiServerMetrics } from './api-server-metrics.ts'
import { resourceMetrics } from './resource-metrics.ts'
import { startWorkers } from './queue-workers.ts'

export type ControllerOptions = {
  /** Returns that many random bytes, for keys. */
  random?: (bytes: number) => Uint8Array
  /** Runs `run` after `ms`; returns how to cancel it. */
  after?: (ms: number, run: () => void) => () => void
}

/** Concurrent key passes share commands to the store, which matters for thousands of keys after a start. The API client has its own concurrency limit. */
const KEY_WORKERS = 64
const START_RETRY_MS = 1_000
/** Interval of the passes over all resources, which find changes that the watch missed. */
const RESYNC_MS = 600_000

/** What this process does. Each phase is an object of its own, so that work begun in one knows that it has ended, even if one of the same name follows. */
type Phase = { name: 'starting' | 'standby' | 'leading' | 'stopped' }

async function controller(app: FastifyInstance, options: ControllerOptions): Promise<void> {
  const { store, clock, log } = app
  const { random = randomBytes, after = afterTimeout } = options
  const metrics = controllerMetrics(app.metrics.registry)
  const resources = resourceMetrics(app.metrics.registry, { resources: app.resources, clock, byTenant: app.config.METRICS_TENANT })
  apiServerMetrics(app.metrics.registry, resources)
  const open = (name: string, queue: () => Queue): Queue =>
    openQueue({ after, random: Math.random, observer: metrics.queue(name, () => (resources.isLeading() ? queue() : null)) })
  const plans = open('plan', () => plans)
  const keys = open('apikey', () => keys)
  // A controller of its own has no broker: there the sweep of the workers publishes.
  const publish = app.hasDecorator('broker') ? app.broker.publish : () => {}
  const context = {
    store,
    resources,
    publish,
    assertLeading,
    clock,
    sealing: app.sealingKeys,
    prefix: app.config.BRAND.toLowerCase(),
    limits: app.planLimits,
    servicePrice: (kind: string) => app.engines.offer(kind)?.route.price ?? null,
    random,
  }
  const readiness = addReadinessChecks(app, { plans, keys, phase: () => phase.name })
  const reconciler = openReconciler({ context, plans, keys, after, keyReady: metrics.keyReady })
  let phase: Phase = { name: 'starting' }
  /** Cancels what is due at a later time in this phase. */
  let cancelTimer = () => {}
  let workers: Promise<void>[] = []

  const isStopped = () => phase.name === 'stopped'

  function enter(name: Phase['name']): Phase {
    cancelTimer()
    phase = { name }
    return phase
  }

  function assertLeading(): void {
    if (!resources.isLeading()) throw new Unavailable('resources', new Error('this process is no longer the leader'))
  }

  function passEnded(): void {
    reconciler.passEnded()
    readiness.passEnded()
  }

  function startAllWorkers(): Promise<void>[] {
    const common = { metrics, clock, log, passEnded }
    const reporting = (kind: 'Plan' | 'ApiKey') => (name: string) => reconciler.reportStoreUnavailable(kind, name)
    return [
      startWorkers({
        ...common,
        name: 'plan',
        queue: plans,
        count: 4,
        reconcile: reconciler.plan,
        reportStoreUnavailable: reporting('Plan'),
      }),
      startWorkers({
        ...common,
        name: 'apikey',
        queue: keys,
        count: KEY_WORKERS,
        reconcile: reconciler.key,
        reportStoreUnavailable: reporting('ApiKey'),
      }),
    ]
  }

  /** Runs `work`, and again after a second while it fails and `isWanted`. */
  async function retrying(step: 'start' | 'sync', work: () => Promise<void>, isWanted: () => boolean): Promise<void> {
    try {
      await work()
    } catch (err) {
      if (!isWanted()) return
      log.warn({ event: 'controller_start_failed', step, err, retryInMs: START_RETRY_MS }, 'controller start failed')
      cancelTimer = after(START_RETRY_MS, () => void retrying(step, work, isWanted))
    }
  }

  async function start(): Promise<void> {
    // The election comes first: a process that leads from the start has listed everything under its lease and need not list again.
    await resources.lead(leadershipChanged)
    if (isStopped()) return
    const elected = phase
    await resources.watch((ref) => reconciler.changed(ref, phase.name === 'leading' ? 'urgent' : 'background'))
    if (isStopped()) return
    if (resources.isLeading()) lead({ isFresh: phase === elected })
    else enter('standby')
  }

  /** A process that is not the leader keeps its watches, so that it can take over at once. */
  function leadershipChanged(isLeading: boolean): void {
    if (isStopped()) return
    // `start` goes on, at its retry too, and asks who leads once it watches.
    if (phase.name === 'starting') phase = { name: 'starting' }
    else if (isLeading) lead({ isFresh: false })
    else {
      enter('standby')
      plans.pause()
      keys.pause()
    }
  }

  /** `isFresh`: everything was listed under this lease. */
  function lead({ isFresh }: { isFresh: boolean }): void {
    const term = enter('leading')
    const isCurrent = () => phase === term
    void retrying('sync', () => sync(isFresh, isCurrent), isCurrent)
  }

  async function sync(isFresh: boolean, isCurrent: () => boolean): Promise<void> {
    // The former leader may have acted on changes that this process has not seen yet: a key that it issued would look like a deleted one.
    if (!isFresh) await resources.refresh()
    await reconciler.enqueueAll()
    if (!isCurrent()) return
    readiness.synced()
    const { ok, detail } = resources.health()
    const queued = { plans: plans.depth(), keys: keys.depth() }
    if (ok) log.info({ event: 'controller_caches_synced', ...queued }, 'controller caches synced')
    else log.warn({ event: 'controller_started_stale', ...queued, detail }, 'controller started with the last known resources')
    plans.resume()
    keys.resume()
    if (workers.length === 0) workers = startAllWorkers()
    passEnded()
    cancelTimer = after(RESYNC_MS, () => void resync(isCurrent))
  }

  async function resync(isCurrent: () => boolean): Promise<void> {
    await reconciler
      .enqueueAll()
      .catch((err: unknown) => log.warn({ event: 'controller_resync_failed', err, retryInMs: RESYNC_MS }, 'controller resync failed'))
    if (isCurrent()) cancelTimer = after(RESYNC_MS, () => void resync(isCurrent))
  }

  app.addHook('onReady', async () => void retrying('start', start, () => phase.name === 'starting'))
  app.addHook('preClose', async () => {
    enter('stopped')
    plans.stop()
    keys.stop()
    await Promise.all(workers)
    await resources.resign()
  })
}

function afterTimeout(ms: number, run: () => void): () => void {
  const timer = setTimeout(run, ms)
  return () => clearTimeout(timer)
}

export default fp(controller, {
  name: 'controller',
  fastify: '5.x',
  decorators: { fastify: ['store', 'resources', 'clock', 'config', 'sealingKeys', 'planLimits', 'engines', 'metrics', 'checks'] },
})
