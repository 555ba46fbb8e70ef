/** Settlement of coding requests: an open reservation, which is settled once its response has closed and its usage is known. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Store } from '../../src/backends/store/store.ts'
import { tenantOf } from '../../src/domain/plans.ts'
import type { OpenReservation, Settlement } from '../../src/upstream/usage/reservation.ts'
import type { Admission } from './admission.ts'
import type { AdmissionQueue } from './admission-queue.ts'
import type { InFlight } from './in-flight.ts'
import type { MeteringMetrics } from './metering-metrics.ts'
import { openGrowth } from './reservation-growth.ts'
import type { UnknownAdmissions } from './unknown-admissions.ts'

type Request = Pick<FastifyRequest, 'log' | 'logged' | 'span'>
type Reply = { raw: Pick<FastifyReply['raw'], 'closed' | 'destroyed' | 'once'> }

export type Settlements = {
  /** The reservation of an admitted request, which is settled when the response has closed. `request.logged` is fulfilled then. */
  open(admission: Admission, request: Request, reply: Reply): OpenReservation
  /** Waits for those in flight for a moment, and repeats none that fails afterwards. Resolves with whether all are settled. */
  stop(): Promise<boolean>
}

type SettlementContext = {
  store: Pick<Store, 'change'>
  clock: () => number
  /** Waits between two tries, milliseconds. */
  pause: (ms: number) => Promise<unknown>
  inFlight: InFlight
  unknown: UnknownAdmissions
  queue: AdmissionQueue
  metrics: MeteringMetrics
}

const RETRY_MS = 1_000
const NOTHING: Promise<Settlement | null> = Promise.resolve(null)

export function openSettlements({ store, clock, pause, inFlight, unknown, queue, metrics }: SettlementContext): Settlements {
  let isStopped = false

  function open({ id, subscription, admitted, durable }: Admission, request: Request, reply: Reply): OpenReservation {
    const { windows: _windows, ...terms } = admitted
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
      const isStored = await durable.then(
        () => true,
        () => false,
      )
      if (!isStored) settlement = null
      const charged = await settleUntilDone(id, subscription, settlement, request)
      // A write of the admission that was given up may still take effect.
      if (!isStored) unknown.add(subscription, clock())
      metrics.settled(reserved(), settlement?.usage ?? null, tenantOf(subscription))
      logFacts({ reservation: id, tokens: settlement?.usage, estimated: settlement?.estimated, charged })
      queue.notify(subscription)
      inFlight.remove(id)
    }
    // No hook of Fastify fires when a client disconnects in the middle of a streamed POST (fastify#6208); the raw response always closes.
    if (reply.raw.closed || reply.raw.destroyed) setImmediate(() => void request.span.run(settle))
    else reply.raw.once('close', () => void request.span.run(settle))
    return { id, admitted: terms, durable, settleWith: (promise) => void (outcome = promise), ensure, cover }
  }

  /** Retries the settlement until its outcome is known. After a shutdown, the sweep of another gateway charges the estimate. */
  async function settleUntilDone(
    id: string,
    subscription: string,
    settlement: Settlement | null,
    request: Request,
  ): Promise<number | null> {
    const { usage = null, estimated = false, seen } = settlement ?? {}
    for (;;) {
      try {
        const answer = await store.change(
          subscription,
          { op: 'settle', id, usage, estimated, ...(seen === undefined ? {} : { seen }) },
          clock(),
        )
        return answer.outcome === 'settled' ? answer.charged : null
      } catch (err) {
        request.log.warn({ event: 'settlement_failed', err, reservation: id }, 'settlement failed, will be retried')
        if (isStopped) return null
        await pause(RETRY_MS)
      }
    }
  }

  return {
    open,
    async stop() {
      const areSettled = await inFlight.drained(RETRY_MS)
      isStopped = true
      return areSettled
    },
  }
}
