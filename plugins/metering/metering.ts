/**
 * Metering of coding requests. preHandler: admission, which reserves tokens in both windows (`request.caller` → `request.reservation`); on close: settlement.
 * Also the window headers of every answer, and the schedule of the sweep of orphaned reservations.
 */
import { randomUUID, randomUUIDv7 } from 'node:crypto'
import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'
import { isDistributed } from '../../src/config/startup-checks.ts'
import { overLimit, type Failure } from '../../src/domain/errors.ts'
import { apiOf, tenantOf } from '../../src/domain/plans.ts'
import type { Answer, Stale } from '../../src/domain/subscription/commands.ts'
import type { RefusalReason } from '../../src/domain/subscription/refusals.ts'
import { planInactive } from '../../src/domain/subscription/subscription.ts'
import type { Admission as Size, Admitted, OpenReservation, Settlement } from '../../src/upstream/usage/reservation.ts'
import { traced } from '../../src/tracing/tracing.ts'
import { viewOf, type WindowsView } from '../../src/domain/token-windows.ts'
import { windowHeaders } from './window-headers.ts'
import { startHeartbeat } from './gateway-heartbeat.ts'
import { openInFlight } from './in-flight.ts'
import { meteringMetrics } from './metering-metrics.ts'
import { usageLimitError } from './usage-limit-errors.ts'
import { openGrowth } from './reservation-growth.ts'
import { reservationSweep } from './orphaned-reservations.ts'
import { openAdmissionQueue } from './admission-queue.ts'
import { openRefusalCounts } from './refusal-counts.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The reservation of this request. Null on routes without `admits`. */
    reservation: OpenReservation | null
  }
  interface FastifyContextConfig {
    /** Makes the route metered: returns the size of the request. Throws the failure of an invalid request. */
    admits?: (request: FastifyRequest) => Size
  }
}

type Admission = Pick<OpenReservation, 'id' | 'durable'> & { subscription: string; admitted: Admitted }
type Refused = Exclude<Answer<'admit'>, Admitted | Stale>

/** The error code of each outcome. */
const REASONS: Record<Refused['outcome'], RefusalReason> = {
  inactive: 'plan_inactive',
  rate: 'rate_limited',
  session_full: 'session_limit_reached',
  weekly_full: 'weekly_limit_reached',
  key_full: 'key_limit_reached',
  concurrency: 'concurrency_limit',
  reserved: 'window_reserved',
}

const SWEEP_MS = 1_000
const LEASE_MS = 5_000
const RETRY_MS = 1_000
const REFUSALS_MS = 5_000
const NOTHING: Promise<Settlement | null> = Promise.resolve(null)
const STORED = Promise.resolve()

async function metering(app: FastifyInstance): Promise<void> {
  const { store, clock } = app
  const instance = randomUUID()
  const inFlight = openInFlight()
  const queue = openAdmissionQueue(clock)
  const metrics = meteringMetrics(app.metrics.registry, app.config.METRICS_TENANT)
  const refusals = openRefusalCounts(store, clock)
  const isAlone = !isDistributed(app.config)
  const sweep = reservationSweep(store, instance, inFlight.has, (subscription, err) => {
    app.log.warn({ event: 'reservation_sweep_failed', err, subscription }, 'sweep of orphaned reservations failed')
  })

  app.decorateRequest('reservation', null)

  app.addHook('preHandler', async (request, reply) => {
    const { admits } = request.routeOptions.config
    const { caller } = request
    if (!admits || !caller) return
    const size = admits(request)
    const id = randomUUIDv7()
    // In flight before the admission is written, so that the sweep does not release it.
    inFlight.add(id)
    try {
      let durable = STORED
      const admit = () =>
        caller.creating(async (subscription, facts) => {
          const decided = await store.decide<'admit'>(subscription, { op: 'admit', id, instance, ...facts, ...size }, clock())
          durable = decided.durable
          return decided.answer
        })
      const answer = await traced('admission', { within: true }, () => queue.admit(caller.key.subscription, admit, isBlocked, reply.raw))
      if (answer.outcome !== 'admitted') {
        // It may rest on admissions that are not stored yet.
        await durable
        metrics.refused(answer.outcome)
        refusals.count(caller.key.subscription, caller.key.keyId, REASONS[answer.outcome])
        throw refusalOf(answer, reply, clock())
      }
      request.reservation = openReservation({ id, subscription: caller.key.subscription, admitted: answer, durable }, request, reply)
    } finally {
      if (!request.reservation) inFlight.remove(id)
    }
  })

  function openReservation({ id, subscription, admitted, durable }: Admission, request: FastifyRequest, reply: FastifyReply): OpenReservation {
    const { windows, ...terms } = admitted
    const extend = async (tokens: number): Promise<number | 'gone'> => {
      const answer = await store.change(subscription, { op: 'extend', id, tokens }, clock())
      if (answer.outcome === 'gone') return 'gone'
      metrics.extended(answer.reserved - reserved())
      return answer.reserved
    }
    const { reserved, ensure, cover } = openGrowth(admitted.reserved, extend, (err) =>
      request.log.warn({ event: 'reservation_extension_failed', err, reservation: id }, 'reservation extension failed'),
    )
    let outcome = NOTHING
    metrics.open(admitted.reserved)
    const { promise: facts, resolve: logFacts } = Promise.withResolvers<Record<string, unknown>>()
    request.logged = facts
    const settle = async () => {
      let settlement: Settlement | null = null
      try {
        settlement = await outcome
      } catch (err) {
        request.log.error({ event: 'usage_unknown', err }, 'usage of the request unknown, nothing charged')
      }
      // In one write with its admission it would be charged again when that write is repeated. Without a stored admission there is no charge.
      const isStored = await durable.then(() => true, () => false)
      if (!isStored) settlement = null
      const charged = await settleUntilDone(id, subscription, settlement, request)
      metrics.settled(reserved(), settlement?.usage ?? null, tenantOf(subscription))
      logFacts({ reservation: id, tokens: settlement?.usage, estimated: settlement?.estimated, charged })
      queue.notify(subscription)
      inFlight.remove(id)
    }
    // No hook of Fastify fires when a client disconnects in the middle of a streamed POST (fastify#6208); the raw response always closes.
    if (reply.raw.closed || reply.raw.destroyed) setImmediate(() => void request.span.run(settle))
    else reply.raw.once('close', () => void request.span.run(settle))
    setWindowHeaders(reply, windows, clock())
    return {
      id,
      admitted: terms,
      durable,
      settleWith(promise) {
        outcome = promise
      },
      ensure,
      cover,
    }
  }

  /** Retries the settlement until its outcome is known. After a shutdown, the sweep of another gateway charges the estimate. */
  async function settleUntilDone(
    id: string,
    subscription: string,
    settlement: Settlement | null,
    request: FastifyRequest,
  ): Promise<number | null> {
    for (;;) {
      try {
        const answer = await store.change(subscription, { op: 'settle', id, usage: settlement?.usage ?? null, estimated: settlement?.estimated ?? false, ...(settlement?.seen === undefined ? {} : { seen: settlement.seen }) }, clock())
        return answer.outcome === 'settled' ? answer.charged : null
      } catch (err) {
        request.log.warn({ event: 'settlement_failed', err, reservation: id }, 'settlement failed, will be retried')
        if (stopped) return null
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
      }
    }
  }

  app.addHook('onSend', (request, reply, payload, done) => {
    const { caller, reservation } = request
    if (reservation && reply.statusCode < 400) return answerOnceStored(reservation, payload)
    if (!caller || reply.hasHeader('x-codex-primary-used-percent')) return done()
    const api = request.is404 ? apiOf(caller.key.product) : request.routeOptions.config.api
    if (api !== 'coding') return done()
    // Fastify takes a promise as well.
    return addCurrentWindows(app, caller.key.subscription, reply)
  })

  let stopped = false
  const timers: NodeJS.Timeout[] = []
  app.addHook('onReady', async () => {
    // The first heartbeat is written before the first reservation, so that this instance is known to the sweep of others.
    timers.push(await startHeartbeat(store, instance, app.log))
    // Reservations that this program made before it was killed are expired at once.
    if (isAlone) metrics.swept({ expired: await sweep.expireOthers(clock()), released: 0 })
    timers.push(setInterval(() => void runSweeps(), SWEEP_MS))
  })

  let sweeping = false
  async function runSweeps(): Promise<void> {
    if (sweeping) return
    sweeping = true
    try {
      const now = clock()
      const released = await sweep.releaseOwn(now)
      const isLeader = !isAlone && (await store.takeLease('reservations', instance, now + LEASE_MS, now))
      const expired = isLeader ? await sweep.expireDead(now) : 0
      metrics.swept({ expired, released })
      if (expired + released > 0) app.log.warn({ event: 'orphaned_reservations_expired', expired, released }, 'expired orphaned reservations')
    } catch (err) {
      app.log.warn({ event: 'reservation_sweep_failed', err }, 'sweep of orphaned reservations failed')
    } finally {
      sweeping = false
    }
  }

  app.addHook('onClose', async () => {
    for (const timer of timers) clearInterval(timer)
    const areSettled = await inFlight.drained(RETRY_MS)
    stopped = true
    if (areSettled) await store.forgetInstance(instance).catch(() => {})
  })
  const counting = periodicTask(REFUSALS_MS, refusals.flush, (err) => app.log.warn({ event: 'refusals_uncounted', err }, 'refused requests cannot be counted'))
  app.addHook('onReady', counting.start)
  app.addHook('onClose', counting.stop)
}

function refusalOf(answer: Refused, reply: FastifyReply, now: number): Failure {
  if (answer.outcome === 'inactive') return planInactive(answer.reason)
  if (answer.outcome === 'rate') return overLimit('plan_rate', { retryAfterSeconds: Math.max(1, Math.ceil(answer.retryAfterMs / 1000)) })
  setWindowHeaders(reply, answer.windows, now)
  return usageLimitError(answer.outcome, answer.windows, now)
}

/** No success is answered before its admission is stored: then the payload goes out, or an error in its place. */
async function answerOnceStored({ durable }: OpenReservation, payload: unknown): Promise<void> {
  const stream = payload instanceof Readable ? payload : null
  // Fastify listens only to a stream that is being sent.
  stream?.on('error', () => {})
  try {
    await durable
    if (stream?.errored) throw stream.errored
  } catch (error) {
    stream?.destroy()
    throw error
  }
}

async function addCurrentWindows({ store, clock }: FastifyInstance, subscription: string, reply: FastifyReply): Promise<void> {
  const record = await store.subscription(subscription).catch(() => null)
  if (record?.coding && record.terms.coding) setWindowHeaders(reply, viewOf(record.coding, record.terms.coding, clock()), clock())
}

function setWindowHeaders(reply: FastifyReply, windows: WindowsView, now: number): void {
  reply.headers(windowHeaders(windows, now, reply.request.routeOptions.config.messages === 'always'))
}

/** Waiting can help: a reservation of another request blocks this one. */
function isBlocked(answer: { outcome: string }): boolean {
  return answer.outcome === 'concurrency' || answer.outcome === 'reserved'
}

export default fp(metering, { name: 'metering', fastify: '5.x', dependencies: ['errors', 'auth'], decorators: { fastify: ['clock', 'config', 'metrics', 'store'], request: ['caller', 'logged', 'span'] } })
