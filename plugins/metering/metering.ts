/**
 * preHandler: `request.caller` → `request.reservation`, in both token windows; on close → settlement. Also the window headers of every answer, the beat of this
 * process, and the sweep of reservations that nobody will settle.
 */
import { randomUUID, randomUUIDv7 } from 'node:crypto'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { isDistributed } from '../../src/config/config.ts'
import { Failure } from '../../src/domain/errors.ts'
import type { Answer } from '../../src/domain/subscription/commands.ts'
import { planInactive } from '../../src/domain/subscription/subscription.ts'
import type { Admission, Admitted, OpenReservation, Settlement } from '../../src/upstream/usage/reservation.ts'
import { viewOf } from '../../src/domain/token-windows.ts'
import { windowHeaders } from './window-headers.ts'
import { meteringMetrics } from './metering-metrics.ts'
import { refused } from './usage-limit-errors.ts'
import { reservationSweep } from './orphaned-reservations.ts'
import { openAdmissionQueue } from './admission-queue.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** What was reserved for this request. Null on routes that admit nothing. */
    reservation: OpenReservation | null
  }
  interface FastifyContextConfig {
    /** Makes the route one that is admitted and settled: how large the request is. Throws the failure of a request that is not valid. */
    admits?: (request: FastifyRequest) => Admission
  }
}

type Admit = Answer<'admit'>

const BEAT_MS = 10_000
const SWEEP_MS = 1_000
const LEASE_MS = 5_000
const RETRY_MS = 1_000

async function metering(app: FastifyInstance): Promise<void> {
  const { store, clock } = app
  const instance = randomUUID()
  const inFlight = new Map<string, Promise<void>>()
  const waiting = openAdmissionQueue(clock)
  const metrics = meteringMetrics(app.metrics.registry, app.config.METRICS_TENANT)
  const isAlone = !isDistributed(app.config)
  const sweep = reservationSweep(store, instance, (id) => inFlight.has(id))

  app.decorateRequest('reservation', null)

  app.addHook('preHandler', async (request, reply) => {
    const { admits } = request.routeOptions.config
    const { caller } = request
    if (!admits || !caller) return
    const size = admits(request)
    const id = randomUUIDv7()
    const known = Promise.withResolvers<void>()
    // Known as in flight before it is asked for, so that the sweep never takes an admission under way for a forgotten one.
    inFlight.set(id, known.promise)
    try {
      const admit = () =>
        caller.creating((subscription, facts) => store.change(subscription, { op: 'admit', id, instance, ...facts, ...size }, clock()))
      const answer = await waiting.enter(caller.key.subscription, admit, isCrowded, reply.raw)
      if (answer.outcome !== 'admitted') throw refusedAs(answer, reply)
      request.reservation = openReservation(id, caller.key.subscription, answer, request, reply, known.resolve)
    } finally {
      if (!request.reservation) {
        inFlight.delete(id)
        known.resolve()
      }
    }
  })

  function refusedAs(answer: Exclude<Admit, Admitted>, reply: FastifyReply): Failure {
    if (answer.outcome === 'stale') return new Failure('unavailable', { retryAfterSeconds: 1 })
    if (answer.outcome === 'inactive') return planInactive(answer.reason)
    if (answer.outcome === 'rate') return new Failure('rate_limited', { retryAfterSeconds: Math.max(1, Math.ceil(answer.retryAfterMs / 1000)) })
    metrics.refused(answer.outcome)
    reply.headers(windowHeaders(answer.windows, clock()))
    return refused(answer.outcome, answer.windows, clock())
  }

  function openReservation(
    id: string,
    subscription: string,
    admitted: Admitted,
    request: FastifyRequest,
    reply: FastifyReply,
    done: () => void,
  ): OpenReservation {
    const headers = windowHeaders(admitted.windows, clock())
    let reserved = admitted.reserved
    let outcome: Promise<Settlement | null> = Promise.resolve(null)
    metrics.open(reserved)
    const facts = Promise.withResolvers<Record<string, unknown>>()
    request.logged = facts.promise
    const settle = async () => {
      const settlement = await outcome.catch((err: unknown) => {
        request.log.error({ err }, 'the usage of a request could not be told; nothing is charged')
        return null
      })
      const charged = await settleUntilDone(id, subscription, settlement, request)
      metrics.settled(reserved, settlement?.usage ?? null, subscription.slice(0, subscription.indexOf('/')))
      facts.resolve({ reservation: id, tokens: settlement?.usage, estimated: settlement?.estimated, charged })
      waiting.poke(subscription)
      inFlight.delete(id)
      done()
    }
    // None of Fastify's own hooks fires when a client leaves in the middle of a streamed POST (fastify#6208); the socket's response always closes.
    if (reply.raw.closed || reply.raw.destroyed) setImmediate(() => void settle())
    else reply.raw.once('close', () => void settle())
    reply.headers(headers)
    return {
      id,
      admitted,
      headers,
      settleWith(promise) {
        outcome = promise
      },
      async ensure(tokens) {
        if (tokens <= reserved) return 'extended'
        const wanted = Math.max(tokens, reserved * 2)
        const answer = await store.change(subscription, { op: 'extend', id, tokens: wanted }, clock())
        if (answer.outcome === 'gone') return 'gone'
        metrics.extended(answer.reserved - reserved)
        reserved = answer.reserved
        return 'extended'
      },
    }
  }

  /** A settlement is tried until it is known, as long as this process lives; after that its estimate is charged by another's sweep. */
  async function settleUntilDone(
    id: string,
    subscription: string,
    settlement: Settlement | null,
    request: FastifyRequest,
  ): Promise<number | null> {
    for (;;) {
      try {
        const answer = await store.change(subscription, { op: 'settle', id, usage: settlement?.usage ?? null, estimated: settlement?.estimated ?? false }, clock())
        return answer.outcome === 'settled' ? answer.charged : null
      } catch (err) {
        request.log.warn({ err, reservation: id }, 'settlement will be tried again')
        if (stopped) return null
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS))
      }
    }
  }

  app.addHook('onSend', async (request, reply) => {
    const { caller } = request
    if (!caller || request.routeOptions.config.api !== 'coding' || reply.hasHeader('x-codex-primary-used-percent')) return
    const record = await store.subscription(caller.key.subscription).catch(() => null)
    if (record?.coding && record.terms.coding) reply.headers(windowHeaders(viewOf(record.coding, record.terms.coding, clock()), clock()))
  })

  let stopped = false
  const timers: NodeJS.Timeout[] = []
  let beats = 0
  app.addHook('onReady', async () => {
    // The first beat is written before the first reservation: an instance that nobody ever saw cannot be found dead.
    await store.heartbeat(instance, ++beats)
    // What this program had admitted before it was killed takes nobody's room any longer.
    if (isAlone) metrics.swept({ expired: await sweep.expireOthers(clock()), released: 0 })
    timers.push(
      setInterval(() => void store.heartbeat(instance, ++beats).catch((err: unknown) => app.log.warn({ err }, 'this process could not say that it lives')), BEAT_MS),
      setInterval(() => void runSweeps(), SWEEP_MS),
    )
  })

  let sweeping = false
  async function runSweeps(): Promise<void> {
    if (sweeping) return
    sweeping = true
    try {
      const now = clock()
      const released = await sweep.releaseOwn(now)
      const isOurs = !isAlone && (await store.takeLease('reservations', instance, now + LEASE_MS, now))
      const expired = isOurs ? await sweep.expireDead(now) : 0
      metrics.swept({ expired, released })
      if (expired + released > 0) app.log.warn({ expired, released }, 'settled reservations that nobody would settle')
    } catch (err) {
      app.log.warn({ err }, 'the sweep of reservations will be tried again')
    } finally {
      sweeping = false
    }
  }

  app.addHook('onClose', async () => {
    for (const timer of timers) clearInterval(timer)
    const settled = Promise.all(inFlight.values())
    await Promise.race([settled, new Promise((resolve) => setTimeout(resolve, RETRY_MS).unref())])
    stopped = true
    if (inFlight.size === 0) await store.forgetInstance(instance).catch(() => {})
  })
}

function isCrowded(answer: { outcome: string }): boolean {
  return answer.outcome === 'concurrency' || answer.outcome === 'reserved'
}

export default fp(metering, { name: 'metering', fastify: '5.x', dependencies: ['errors', 'auth'] })
