/** Metrics of the backends: duration and outcome of each verb, retries of the store, messages, money. */
import type { FastifyBaseLogger } from 'fastify'
import type { Registry } from 'prom-client'
import type { BrokerContext, BrokerEvent } from '../backends/broker/broker.ts'
import { Busy, Unavailable } from '../domain/errors.ts'
import type { Retry } from '../backends/store/record-change-options.ts'
import type { Store } from '../backends/store/store.ts'
import { isTracing, traced, type Attributes, type SpanOptions } from '../telemetry/tracing.ts'
import type { TaskContext } from '../tasks/task-context.ts'
import { metersOf } from '../telemetry/metrics.ts'

const BUCKETS = [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10]

type Verb = (...args: never[]) => Promise<unknown>

/** Instruments a backend: every verb but `close` is timed until it is done as `tollgate_<backend>_duration_seconds`, and a span of the current trace with the attributes of its `system`. */
export function instrument<T extends object>(backend: string, verbs: T, registry: Registry, system: Attributes = {}): T {
  const durations = metersOf(registry).histogram(
    `tollgate_${backend}_duration_seconds`,
    `Verbs of the ${backend} backend.`,
    BUCKETS,
    'verb',
    'outcome',
  )
  // Labels are resolved once per outcome rather than once per call.
  const outcomesOf = (verb: string) => {
    const [answered, unavailable, busy, failed] = ['answered', 'unavailable', 'busy', 'failed'].map((outcome) =>
      durations.labels({ verb, outcome }),
    )
    const outcomeOf = (error: unknown) => (error instanceof Busy ? busy : error instanceof Unavailable ? unavailable : failed)
    const end = (outcome: typeof answered, sinceMs: number) => outcome?.observe((performance.now() - sinceMs) / 1000)
    return {
      answered: (sinceMs: number) => end(answered, sinceMs),
      failed: (error: unknown, sinceMs: number) => end(outcomeOf(error), sinceMs),
    }
  }
  const timed = (name: string, verb: Verb): Verb => {
    const { answered, failed } = outcomesOf(name)
    const span: SpanOptions = {
      kind: 'client',
      within: true,
      attributes: system['db.system.name'] ? { ...system, 'db.operation.name': name } : system,
    }
    return (...args) => {
      const sinceMs = performance.now()
      const failedBy = (error: unknown) => failed(error, sinceMs)
      const answeredBy = (answer: unknown) => {
        // An answer that is given before its write ends with that.
        const durable = (answer as { durable?: Promise<void> } | null | undefined)?.durable
        if (durable) durable.then(() => answered(sinceMs), failedBy)
        else answered(sinceMs)
      }
      // The verb's own promise is returned: a request calls several.
      const answer = called(() => traced(`${backend} ${name}`, span, () => verb(...args)))
      answer.then(answeredBy, failedBy)
      return answer
    }
  }
  /** It stands for `decide` and is counted with it, by its write. While traces are on it answers nothing, so that a span shows what follows. */
  const timedNow = (verb: Store['decideNow']): Store['decideNow'] => {
    const { answered, failed } = outcomesOf('decide')
    return (id, command, now, write) => {
      if (isTracing()) return null
      const sinceMs = performance.now()
      return verb(id, command, now, {
        stored() {
          answered(sinceMs)
          write.stored()
        },
        lost(error) {
          failed(error, sinceMs)
          write.lost(error)
        },
      })
    }
  }
  const instrumented = (name: string, verb: unknown) => {
    if (name === 'close') return verb
    return name === 'decideNow' ? timedNow(verb as Store['decideNow']) : timed(name, verb as Verb)
  }

  return Object.fromEntries(Object.entries(verbs).map(([name, verb]) => [name, instrumented(name, verb)])) as T
}

/** What a call returns; a rejected promise when it throws at once. */
function called(call: () => Promise<unknown>): Promise<unknown> {
  try {
    return call()
  } catch (error) {
    return Promise.reject(error as Error)
  }
}

/** Counts compare-and-set retries of the store. */
export function countRetries(registry: Registry): (reason: Retry) => void {
  const retries = metersOf(registry).counter(
    'tollgate_store_conflicts_total',
    'Changes of a record that were retried: another process wrote first, or the outcome of a write is unknown.',
    'reason',
  )
  return (reason) => retries.inc({ reason })
}

/** Counts and logs records whose time was ahead of the store's clock and was taken back. */
export function countHealed(registry: Registry, log: FastifyBaseLogger): (id: string, aheadMs: number) => void {
  const healed = metersOf(registry).counter(
    'tollgate_store_records_healed_total',
    "Records whose time was ahead of the store's clock and was taken back.",
  )
  return (subscription, aheadMs) => {
    healed.inc()
    log.warn({ event: 'record_healed', subscription, aheadMs }, "record was ahead of the store's clock and was healed")
  }
}

/** Logs the beginning and the end of a time in which the store takes no writes of records. */
export function logFailingWrites(log: FastifyBaseLogger): (reason: unknown) => void {
  return (reason) =>
    reason === null
      ? log.info({ event: 'store_writes_resumed' }, 'store takes writes again')
      : log.error({ event: 'store_writes_failing', err: reason }, 'store takes no writes, coding requests are not sent')
}

/** Counts messages of the broker, and restarts of its clients. */
export function countMessages(registry: Registry): (event: BrokerEvent, kind: string, count: number) => void {
  const { counter } = metersOf(registry)
  const messages = counter(
    'tollgate_broker_messages_total',
    'Messages of the broker: published, failed to be, received, and ignored as invalid.',
    'event',
    'kind',
  )
  const restarts = counter('tollgate_broker_restarts_total', 'Clients of the broker that were restarted after a failure.', 'kind')
  return (event, kind, count) => (event === 'restarted' ? restarts.inc({ kind }, count) : messages.inc({ event, kind }, count))
}

/** Times sends to the broker. */
export function timeSends(registry: Registry): BrokerContext['sent'] {
  const durations = metersOf(registry).histogram(
    'tollgate_broker_duration_seconds',
    'Sends of messages to the broker.',
    BUCKETS,
    'verb',
    'outcome',
  )
  return (outcome, seconds) => durations.observe({ verb: 'publish', outcome }, seconds)
}

/** Counts money that moved. `byTenant` adds a tenant label: one series per tenant. */
export function countMoney(registry: Registry, byTenant: boolean): TaskContext['moved'] {
  const money = metersOf(registry).counter(
    'tollgate_money_micro_total',
    'Money of tasks in micro-units: held at creation and by extensions, captured or voided at the end.',
    ...(byTenant ? ['move', 'tenant'] : ['move']),
  )
  return (move, tenant, micro) => money.inc({ move, ...(byTenant ? { tenant } : {}) }, micro)
}
