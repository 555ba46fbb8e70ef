/**
 * Metering of coding requests. preHandler: admission, which reserves tokens in both windows (`request.caller` → `request.reservation`); on close: settlement.
 * Also the window headers of every answer.
 */
import { randomUUID, randomUUIDv7 } from 'node:crypto'
import { Readable } from 'node:stream'
import { setTimeout } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply } from 'fastify'
import fp from 'fastify-plugin'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'
import { isDistributed } from '../../src/config/startup-checks.ts'
import { overLimit, type Failure } from '../../src/domain/errors.ts'
import { apiOf } from '../../src/domain/plans.ts'
import { planInactive } from '../../src/domain/subscription/subscription.ts'
import { viewOf, type WindowsView } from '../../src/domain/token-windows.ts'
import type { Admission as Size, OpenReservation } from '../../src/upstream/usage/reservation.ts'
import { openAdmission, type Admission, type Refused } from './admission.ts'
import { openAdmissionQueue } from './admission-queue.ts'
import { openHeartbeat } from './gateway-heartbeat.ts'
import { openInFlight } from './in-flight.ts'
import { meteringMetrics } from './metering-metrics.ts'
import { openRefusalCounts } from './refusal-counts.ts'
import { openReservationSweeps } from './reservation-sweeps.ts'
import { openSettlements } from './settlement.ts'
import { openUnknownAdmissions } from './unknown-admissions.ts'
import { usageLimitError } from './usage-limit-errors.ts'
import { windowHeaders } from './window-headers.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The reservation of this request. Null on routes without `admits`. */
    reservation: OpenReservation | null
  }
  interface FastifyContextConfig {
    /** Makes the route metered: returns the size of the request. Throws the failure of an invalid request. */
    admits?: (request: FastifyRequest) => Size
    /** The route waits until the admission is stored before it does anything, so that it is not deferred. */
    storedFirst?: boolean
  }
}

const REFUSALS_MS = 5_000

async function metering(app: FastifyInstance): Promise<void> {
  const { store, clock, log } = app
  const instance = randomUUID()
  const isAlone = !isDistributed(app.config)
  const inFlight = openInFlight()
  const queue = openAdmissionQueue(clock)
  const metrics = meteringMetrics(app.metrics.registry, app.config.METRICS_TENANT)
  const refusals = openRefusalCounts(store, clock)
  const failed = (subscription: string, err: unknown) =>
    log.warn({ event: 'reservation_sweep_failed', err, subscription }, 'sweep of orphaned reservations failed')
  const unknown = openUnknownAdmissions(store, instance, inFlight.has, failed)
  const admissions = openAdmission({ store, clock, uuid: randomUUIDv7, instance, inFlight, unknown, queue, metrics, refusals })
  const settlements = openSettlements({ store, clock, pause: setTimeout, inFlight, unknown, queue, metrics })

  app.decorateRequest('reservation', null)

  app.addHook('preHandler', (request, reply, done) => {
    const { admits, storedFirst } = request.routeOptions.config
    const { caller } = request
    if (!admits || !caller) return done()
    const reserve = (admission: Admission) => {
      setWindowHeaders(reply, admission.admitted.windows, clock())
      request.reservation = settlements.open(admission, request, reply)
    }
    const size = admits(request)
    const admission = storedFirst ? null : admissions.admitNow(caller, size, reply.raw, (answer) => notAdmitted(answer, reply, clock()))
    // Fastify takes a promise as well.
    if (!admission) return admitted(admissions.admit(caller, size, reply.raw), reply).then(reserve)
    reserve(admission)
    done()
  })

  async function admitted(outcome: Promise<Admission | Refused>, reply: FastifyReply): Promise<Admission> {
    const answer = await outcome
    if ('outcome' in answer) throw notAdmitted(answer, reply, clock())
    return answer
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

  const heartbeat = openHeartbeat(store, instance, log)
  const sweeps = openReservationSweeps(app, { instance, isAlone, unknown, metrics }, failed)
  const counting = periodicTask(REFUSALS_MS, refusals.flush, (err) =>
    log.warn({ event: 'refusals_uncounted', err }, 'refused requests cannot be counted'),
  )
  // The first heartbeat is written before the first reservation, so that this instance is known to the sweep of others.
  for (const task of [heartbeat, sweeps, counting]) app.addHook('onReady', task.start)
  app.addHook('onClose', async () => {
    const areSettled = await settlements.stop()
    // Once the last heartbeat is written, so is what SQLite had not answered before: the sweep finds it.
    for (const task of [counting, heartbeat, sweeps]) await task.stop()
    if (areSettled) await store.forgetInstance(instance).catch(() => {})
  })
}

function notAdmitted(answer: Refused, reply: FastifyReply, now: number): Failure {
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

export default fp(metering, {
  name: 'metering',
  fastify: '5.x',
  dependencies: ['errors', 'auth'],
  decorators: { fastify: ['clock', 'config', 'metrics', 'store'], request: ['caller', 'logged', 'span'] },
})
