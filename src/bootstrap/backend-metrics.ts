/** What operators see of the backends: how long each verb takes and how it ends, and how often the store starts over. */
import { Counter, Histogram, type Registry } from 'prom-client'
import type { BrokerEvent } from '../backends/broker/broker.ts'
import { Unavailable } from '../domain/errors.ts'
import type { Retry } from '../backends/store/group-commit.ts'
import type { TaskContext } from '../tasks/task-context.ts'

const BUCKETS = [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10]

type Verb = (...args: never[]) => Promise<unknown>

/** The backend with every verb but `close` timed, as `tollgate_<backend>_duration_seconds`. */
export function observed<T extends object>(backend: string, verbs: T, registry: Registry): T {
  const durations = new Histogram({
    name: `tollgate_${backend}_duration_seconds`,
    help: `Verbs of the ${backend} backend.`,
    labelNames: ['verb', 'outcome'],
    buckets: BUCKETS,
    registers: [registry],
  })
  /** Labels are looked up once for each outcome rather than for each call. */
  const timed = (name: string, verb: Verb): Verb => {
    const [answered, unavailable, failed] = ['answered', 'unavailable', 'failed'].map((outcome) => durations.labels({ verb: name, outcome }))
    return async (...args) => {
      const sinceMs = performance.now()
      let outcome = failed
      try {
        const answer = await verb(...args)
        outcome = answered
        return answer
      } catch (error) {
        if (error instanceof Unavailable) outcome = unavailable
        throw error
      } finally {
        outcome?.observe((performance.now() - sinceMs) / 1000)
      }
    }
  }
  return Object.fromEntries(Object.entries(verbs).map(([name, verb]) => [name, name === 'close' ? verb : timed(name, verb as Verb)])) as T
}

/** Counts how often a change of a record started over. */
export function countRetries(registry: Registry): (reason: Retry) => void {
  const retries = new Counter({
    name: 'tollgate_store_conflicts_total',
    help: 'Changes of a record that started over: another process was first, or an outcome was not learned.',
    labelNames: ['reason'],
    registers: [registry],
  })
  return (reason) => retries.inc({ reason })
}

/** Counts what happens to rings. */
export function countPublished(registry: Registry): (event: BrokerEvent, kind: string, count: number) => void {
  const rings = new Counter({ name: 'tollgate_broker_rings_total', help: 'Rings of the doorbell, and failures of what hears them.', labelNames: ['event', 'kind'], registers: [registry] })
  return (event, kind, count) => rings.inc({ event, kind }, count)
}

/** Counts the money of tasks. `byTenant` adds the tenant: as many series as there are tenants. */
export function countMoney(registry: Registry, byTenant: boolean): TaskContext['moved'] {
  const money = new Counter({
    name: 'tollgate_money_micro_total',
    help: 'Money of tasks, in micro-units: held when they were created, charged and given back when they ended.',
    labelNames: byTenant ? ['move', 'tenant'] : ['move'],
    registers: [registry],
  })
  return (move, tenant, micro) => money.inc({ move, ...(byTenant ? { tenant } : {}) }, micro)
}
