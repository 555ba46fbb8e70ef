/** Settlement of coding requests: an open reservation, which is settled once its response has closed, its admission is stored and its usage is known. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Write } from '../../src/backends/store/queued-command.ts'
import type { Store } from '../../src/backends/store/store.ts'
import { onceClosed } from '../../src/http/disconnect.ts'
import { tenantOf } from '../../src/domain/plans.ts'
import type { Answer, Command } from '../../src/domain/subscription/commands.ts'
import type { OpenReservation, Settlement } from '../../src/upstream/usage/reservation.ts'
import type { Admission } from './admission.ts'
import type { AdmissionQueue } from './admission-queue.ts'
import type { InFlight } from './in-flight.ts'
import type { MeteringMetrics } from './metering-metrics.ts'
import { openGrowth, type Growth } from './reservation-growth.ts'
import type { UnknownAdmissions } from './unknown-admissions.ts'

type Request = Pick<FastifyRequest, 'log' | 'logged' | 'span'>
type Reply = { raw: Pick<FastifyReply['raw'], 'closed' | 'destroyed' | 'once'> }
type Settle = Extract<Command, { op: 'settle' }>

export type Settlements = {
  /** The reservation of an admitted request, which is settled when the response has closed. `request.logged` tells of it then. */
  open(admission: Admission, request: Request, reply: Reply): OpenReservation
  /** Waits for those in flight for a moment, and repeats none that fails afterwards. Resolves with whether all are settled. */
  stop(): Promise<boolean>
}

type SettlementContext = {
  store: Pick<Store, 'change' | 'decideNow'>
  clock: () => number
  /** Waits between two tries, milliseconds. */
  pause: (ms: number) => Promise<unknown>
  inFlight: InFlight
  unknown: UnknownAdmissions
  queue: AdmissionQueue
  metrics: MeteringMetrics
}

/** What all reservations share. */
type Shared = SettlementContext & { isStopped: boolean }

const RETRY_MS = 1_000

export function openSettlements(context: SettlementContext): Settlements {
  const shared: Shared = { ...context, isStopped: false }
  return {
    open: (admission, request, reply) => new Reservation(admission, request, reply, shared),
    async stop() {
      const areSettled = await shared.inFlight.drained(RETRY_MS)
      shared.isStopped = true
      return areSettled
    },
  }
}

class Reservation implements OpenReservation, Write {
  readonly id: string
  readonly admitted: OpenReservation['admitted']
  readonly ensure: Growth['ensure']
  readonly cover: Growth['cover']
  readonly #admission: Admission
  readonly #request: Request
  readonly #shared: Shared
  readonly #growth: Growth
  #isClosed = false
  /** Undefined while it is not known. */
  #isStored: boolean | undefined = undefined
  #isExpected = false
  #outcome: Settlement | null | undefined = undefined
  #told: (facts: Record<string, unknown>) => void = () => {}

  constructor(admission: Admission, request: Request, { raw }: Reply, shared: Shared) {
    const { windows: _windows, ...terms } = admission.admitted
    this.id = admission.id
    this.admitted = terms
    this.#admission = admission
    this.#request = request
    this.#shared = shared
    this.#growth = openGrowth(
      terms.reserved,
      (tokens) => this.#extend(tokens),
      (err) => request.log.warn({ event: 'reservation_extension_failed', err, reservation: this.id }, 'reservation extension failed'),
    )
    this.ensure = this.#growth.ensure
    this.cover = this.#growth.cover
    shared.metrics.open(terms.reserved)
    request.logged = this
    admission.write.tell(this)
    onceClosed(raw, () => this.#closed())
  }

  whenSettled(told: (fields: Record<string, unknown>) => void): void {
    this.#told = told
  }

  get durable(): Promise<void> {
    return this.#admission.write.promise()
  }

  whenStored(told: Write): void {
    this.#admission.write.tell(told)
  }

  openSettlement(): (settlement: Settlement | null) => void {
    this.#isExpected = true
    return (settlement) => {
      if (this.#outcome !== undefined) return
      this.#outcome = settlement
      this.#settle()
    }
  }

  settleWith(outcome: Promise<Settlement | null>): void {
    const settle = this.openSettlement()
    outcome.then(settle, (err: unknown) => {
      this.#request.log.error({ event: 'usage_unknown', err }, 'usage of the request unknown, nothing charged')
      settle(null)
    })
  }

  /** Of the admission: decided again, it may have reserved less. */
  stored(): void {
    this.#isStored = true
    const { reserved } = this.#admission.admitted
    this.#shared.metrics.extended(reserved - this.#growth.reserved())
    this.#growth.stored(reserved)
    this.#settle()
  }

  /** Without a stored admission there is no charge. */
  lost(): void {
    this.#isStored = false
    this.#settle()
  }

  #closed(): void {
    this.#isClosed = true
    if (!this.#isExpected) this.#outcome = null
    this.#settle()
  }

  /** In one write with its admission it would be charged again when that write is repeated. */
  #settle(): void {
    if (!this.#isClosed || this.#isStored === undefined || this.#outcome === undefined) return
    const { usage = null, estimated = false, seen } = (this.#isStored && this.#outcome) || {}
    const command: Settle = { op: 'settle', id: this.id, usage, estimated, ...(seen === undefined ? {} : { seen }) }
    this.#request.span.run(() => this.#charge(command))
  }

  #charge(command: Settle): void {
    const { store, clock } = this.#shared
    const answer = store.decideNow<'settle'>(this.#admission.subscription, command, clock(), {
      stored: () => this.#settled(command, answer),
      lost: (error) => void this.#chargeUntilDone(command, error),
    })
    if (answer === null) void this.#chargeUntilDone(command)
  }

  /** Repeats the settlement until its outcome is known. After a shutdown, the sweep of another gateway charges the estimate. */
  async #chargeUntilDone(command: Settle, failure: unknown = null): Promise<void> {
    const { store, clock, pause } = this.#shared
    let answer: Answer<'settle'> | null = null
    for (let err = failure; answer === null;) {
      if (err !== null) {
        this.#request.log.warn({ event: 'settlement_failed', err, reservation: this.id }, 'settlement failed, will be retried')
        if (this.#shared.isStopped) break
        await pause(RETRY_MS)
      }
      try {
        answer = await store.change<'settle'>(this.#admission.subscription, command, clock())
      } catch (error) {
        err = error
      }
    }
    this.#settled(command, answer)
  }

  #settled({ usage, estimated }: Settle, answer: Answer<'settle'> | null): void {
    const { unknown, clock, metrics, queue, inFlight } = this.#shared
    const { subscription } = this.#admission
    // A write of the admission that was given up may still take effect.
    if (!this.#isStored) unknown.add(subscription, clock())
    metrics.settled(this.#growth.reserved(), usage, tenantOf(subscription))
    const facts = usage ? { tokens: usage, estimated } : {}
    const charged = answer?.outcome === 'settled' ? answer.charged : null
    this.#told({ reservation: this.id, ...facts, charged })
    queue.notify(subscription)
    // One whose charge failed until the process stopped is not released.
    if (answer !== null || usage === null) inFlight.remove(this.id)
  }

  /** Not before the admission is stored: one that is decided again would be taken for one that was settled. */
  async #extend(tokens: number): Promise<number | 'gone'> {
    const { store, clock, metrics } = this.#shared
    await this.durable
    const answer = await store.change<'extend'>(this.#admission.subscription, { op: 'extend', id: this.id, tokens }, clock())
    if (answer.outcome === 'gone') return 'gone'
    metrics.extended(answer.reserved - this.#growth.reserved())
    return answer.reserved
  }
}
