/**
 * The loop that makes what is declared come true: resources → queue → reconcile → store, Secret, status. Everything it does is decided by `src/domain/reconcile/`
 * from what is there now, so it may run again at any time, and a restart with nothing to do writes nothing.
 */
import { randomBytes } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { Unavailable } from '../../src/domain/errors.ts'
import { controllerMetrics } from './controller-metrics.ts'
import { openQueue, type Queue } from './work-queue.ts'
import { openReconciler } from './reconciler.ts'
import { sourceMetrics } from './api-server-metrics.ts'
import { startWorkers } from './queue-workers.ts'

export type ControllerOptions = {
  /** That many random bytes, for keys. */
  random?: (bytes: number) => Uint8Array
  /** Runs `run` after `ms`; returns how to cancel it. */
  after?: (ms: number, run: () => void) => () => void
  /** Everything is looked at again that often, in case something was missed. */
  resyncMs?: number
}

/** Keys that are reconciled at once share commands to the store: thousands of them are looked at after a start. How much is asked of the source at once has its own limit. */
const KEY_WORKERS = 64
const START_RETRY_MS = 1_000
const PATIENCE_MS = 5_000

async function controller(app: FastifyInstance, options: ControllerOptions): Promise<void> {
  const { store, resources, clock, log } = app
  const { random = randomBytes, after = afterTimeout, resyncMs = 600_000 } = options
  const metrics = controllerMetrics(app.metrics.registry)
  sourceMetrics(app.metrics.registry, resources)
  const open = (name: string, queue: () => Queue): Queue => openQueue({ after, random: Math.random, observer: metrics.queue(name, queue) })
  const plans = open('plan', () => plans)
  const keys = open('apikey', () => keys)
  const work = { store, resources, assertLeading, clock, sealing: app.sealingKeys, prefix: app.config.BRAND.toLowerCase(), limits: app.planLimits, servicePrice: (verb: string) => app.engines.offer(verb)?.route.price ?? null, random }
  const reconciler = openReconciler({ work, plans, keys, after, keyReady: metrics.keyReady })
  let syncedAt: number | null = null
  let isFollowing = false
  let wasRead = false
  let isSettled = false
  let isLeading = false
  /** Counts the turns, so that what one began ends with it. */
  let turns = 0
  let isStopping = false
  let running: Promise<void>[] = []
  let cancelTimer = () => {}

  function assertLeading(): void {
    if (!resources.isLeading()) throw new Unavailable('resources', new Error('this process no longer leads'))
  }

  /** The first pass over everything is complete once both queues are empty for the first time. */
  function rested(): void {
    reconciler.rested()
    isSettled ||= plans.isIdle() && keys.isIdle()
  }

  function startAllWorkers(): Promise<void>[] {
    const common = { metrics, clock, log, rested }
    return [
      startWorkers({ ...common, name: 'plan', queue: plans, count: 4, reconcile: reconciler.plan, unreachable: (name) => reconciler.unreachable('Plan', name) }),
      startWorkers({ ...common, name: 'apikey', queue: keys, count: KEY_WORKERS, reconcile: reconciler.key, unreachable: (name) => reconciler.unreachable('ApiKey', name) }),
    ]
  }

  /** Again later, unless it succeeds or has no sense any more. */
  async function persist(what: string, work: () => Promise<void>, isWanted: () => boolean): Promise<void> {
    try {
      await work()
    } catch (err) {
      if (!isWanted()) return
      log.warn({ err, retryInMs: START_RETRY_MS }, what)
      cancelTimer = after(START_RETRY_MS, () => void persist(what, work, isWanted))
    }
  }

  async function start(): Promise<void> {
    // First, so that who leads from the start has looked since, and need not look again.
    await resources.lead(turn)
    if (isStopping) return
    const before = turns
    await resources.watch((ref) => reconciler.changed(ref, isLeading && isFollowing ? 'urgent' : 'background'))
    isFollowing = true
    if (isLeading) take({ isFresh: turns === before })
  }

  /** Whoever does not lead follows what is declared all the same, so that it can take over at once. */
  function turn(next: boolean): void {
    isLeading = next
    turns++
    cancelTimer()
    if (!next) {
      plans.pause()
      keys.pause()
    } else if (isFollowing) take({ isFresh: false })
  }

  /** `isFresh`: everything was looked at under this lease. */
  function take({ isFresh }: { isFresh: boolean }): void {
    const now = turns
    const isOurs = () => turns === now && !isStopping
    void persist('the controller cannot begin yet', () => begin(isFresh, isOurs), isOurs)
  }

  async function begin(isFresh: boolean, isOurs: () => boolean): Promise<void> {
    // Who led before may have acted on what was not heard of here: a key that it made would be taken for one that went.
    if (!isFresh) await resources.refresh()
    await reconciler.all()
    if (!isOurs()) return
    syncedAt ??= clock()
    const { ok, detail } = resources.health()
    const waiting = { plans: plans.depth(), keys: keys.depth() }
    if (ok) log.info(waiting, 'the controller knows everything that is declared')
    else log.warn({ ...waiting, detail }, 'the controller begins with what was declared before, since it cannot be read now')
    plans.resume()
    keys.resume()
    if (running.length === 0) running = startAllWorkers()
    rested()
    cancelTimer = after(resyncMs, () => void resync(isOurs))
  }

  async function resync(isOurs: () => boolean): Promise<void> {
    await reconciler.all().catch((err: unknown) => log.warn({ err }, 'not everything could be enqueued; the next resync tries again'))
    if (isOurs()) cancelTimer = after(resyncMs, () => void resync(isOurs))
  }

  // Ready once the source was read: when it is away later, requests go on by what the store knows.
  app.checks.push(() => {
    const { ok, detail } = resources.health()
    wasRead ||= ok && isFollowing
    return { name: 'resources', ok: wasRead, detail }
  })
  // Ready once everything was looked at, so that the keys of a fresh start exist; but a long backlog keeps nobody waiting whose key works already.
  app.checks.push(() => {
    if (isFollowing && !isLeading) return { name: 'controller', ok: true, detail: 'this process does not lead' }
    const isPatient = syncedAt === null || clock() - syncedAt < PATIENCE_MS
    const waiting = `${plans.depth()} plans and ${keys.depth()} keys wait`
    return { name: 'controller', ok: isSettled || !isPatient, detail: isSettled ? waiting : `the first pass is not complete: ${waiting}` }
  })
  app.addHook('onReady', async () => void persist('the controller cannot start yet', start, () => !isStopping))
  app.addHook('preClose', async () => {
    isStopping = true
    cancelTimer()
    plans.stop()
    keys.stop()
    await Promise.all(running)
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
