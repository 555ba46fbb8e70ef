/** Admission of a coding request: reserves tokens in both windows, at once where nothing is unusual, or refuses; waits in the queue while other requests block it. */
import type { FastifyRequest } from 'fastify'
import { DecidedOtherwise } from '../../src/backends/store/queued-command.ts'
import type { Store } from '../../src/backends/store/store.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import type { Answer, Stale } from '../../src/domain/subscription/commands.ts'
import type { RefusalReason } from '../../src/domain/subscription/refusals.ts'
import { traced } from '../../src/telemetry/tracing.ts'
import { AdmissionWrite } from '../../src/upstream/usage/admission-write.ts'
import type { Admission as Size, Admitted } from '../../src/upstream/usage/reservation.ts'
import { CONCURRENCY, type AdmissionQueue, type Block, type Client } from './admission-queue.ts'
import type { InFlight } from './in-flight.ts'
import type { MeteringMetrics } from './metering-metrics.ts'
import type { RefusalCounts } from './refusal-counts.ts'
import type { UnknownAdmissions } from './unknown-admissions.ts'

/** An admitted request, whose reservation is in flight. */
export type Admission = { id: string; subscription: string; admitted: Admitted; write: AdmissionWrite }
export type Refused = Exclude<Answer<'admit'>, Admitted | Stale>

type Caller = NonNullable<FastifyRequest['caller']>

type AdmissionContext = {
  store: Pick<Store, 'decide' | 'decideNow'>
  clock: () => number
  /** A new id of a request, a UUID v7. */
  uuid: () => string
  /** This process. */
  instance: string
  inFlight: InFlight
  unknown: UnknownAdmissions
  queue: AdmissionQueue
  metrics: MeteringMetrics
  refusals: RefusalCounts
}

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
const WINDOW = 'window'
const STORED = Promise.resolve()

export type Admissions = {
  /**
   * Admits an ordinary request at once; null for any other one, which then takes `admit`. Where another process has changed the plan meanwhile, it is admitted again when it is written, as by
   * `admit`: what is refused then is told to its write, by the error of `refusal`.
   */
  admitNow(caller: Caller, size: Size, client: Client, refusal: (answer: Refused) => Error): Admission | null
  /** Returns the admission or the refusal. Throws `Unavailable` when the outcome is unknown: what may have been reserved is released later. */
  admit(caller: Caller, size: Size, client: Client): Promise<Admission | Refused>
}

export function openAdmission(context: AdmissionContext): Admissions {
  const { store, clock, uuid, instance, inFlight, unknown, queue, metrics, refusals } = context

  function admitNow(caller: Caller, size: Size, client: Client, refusal: (answer: Refused) => Error): Admission | null {
    const { subscription, keyId } = caller.key
    if (!queue.isFree({ subscription, causes: [WINDOW, causeOf(keyId)] })) return null
    const id = uuid()
    const write = new AdmissionWrite()
    let admission: Admission | null = null
    const lost = (error: unknown): void => {
      if (admission && error instanceof DecidedOtherwise) void admitAgain(admission, caller, size, client, refusal)
      else write.lost(error)
    }
    const admitted = caller.creatingNow((owner, facts) => {
      const command = { op: 'admit', id, instance, ...facts, ...size } as const
      return store.decideNow<'admit'>(owner, command, clock(), { stored: () => write.stored(), lost })
    })
    if (admitted?.outcome !== 'admitted') {
      // A command whose write was lost is applied again, and may then reserve what it was refused before.
      write.tell({ stored() {}, lost: () => unknown.add(subscription, clock()) })
      return null
    }
    inFlight.add(id)
    return (admission = { id, subscription, admitted, write })
  }

  async function admitAgain(
    admission: Admission,
    caller: Caller,
    size: Size,
    client: Client,
    refusal: (answer: Refused) => Error,
  ): Promise<void> {
    const { id, write } = admission
    try {
      const again = await admitAs(id, caller, size, client)
      metrics.admittedAgain('write' in again)
      if (!('write' in again)) return write.lost(refusal(again))
      admission.subscription = again.subscription
      admission.admitted = again.admitted
      again.write.tell(write)
    } catch (error) {
      if (!(error instanceof Unavailable)) metrics.admittedAgain(false)
      write.lost(error)
    }
  }

  const admit = (caller: Caller, size: Size, client: Client) => admitAs(uuid(), caller, size, client)

  async function admitAs(id: string, caller: Caller, size: Size, client: Client): Promise<Admission | Refused> {
    let { subscription, keyId } = caller.key
    let durable = STORED
    const attempt = () =>
      caller.creating(async (owner, facts) => {
        subscription = owner
        keyId = facts.keyId
        const decided = await store.decide<'admit'>(owner, { op: 'admit', id, instance, ...facts, ...size }, clock())
        durable = decided.durable
        return decided.answer
      })
    // In flight before it is written, so that it is not released as one of an unknown outcome.
    inFlight.add(id)
    let isAdmitted = false
    try {
      const waiting = { subscription, causes: [WINDOW, causeOf(keyId)], client }
      const answer = await traced('admission', { within: true }, () => queue.admit(waiting, attempt, (found) => blockOf(found, keyId)))
      isAdmitted = answer.outcome === 'admitted'
      if (answer.outcome === 'admitted') return { id, subscription, admitted: answer, write: AdmissionWrite.of(durable) }
      // It may rest on admissions that are not stored yet.
      await durable
      metrics.refused(answer.outcome)
      refusals.count(subscription, keyId, REASONS[answer.outcome])
      return answer
    } catch (error) {
      if (error instanceof Unavailable) unknown.add(subscription, clock())
      throw error
    } finally {
      if (!isAdmitted) inFlight.remove(id)
    }
  }

  return { admitNow, admit }
}

function causeOf(keyId: string): string {
  return `key ${keyId}`
}

/** Why a request waits: a reservation of another one blocks it. */
function blockOf(answer: Admitted | Refused, keyId: string): Block | null {
  if (answer.outcome === 'concurrency') return { cause: CONCURRENCY, needs: 0, left: 0 }
  if (answer.outcome !== 'reserved') return null
  return { cause: answer.of === 'key' ? causeOf(keyId) : WINDOW, needs: answer.needs, left: answer.left }
}
