/** Webhook deliveries in SQLite: JSON records with the columns that indexes use, and their claims. */
import { isSelected, redeliver } from '../../../domain/webhook-redelivery.ts'
import type { Delivery } from '../../../domain/task.ts'
import type { Store } from '../store.ts'
import { capOf, queueName, type DeliveryQueue } from '../task-store.ts'
import type { Database } from './database.ts'
import { openDeliveryQueues, type DeliveryQueues } from './delivery-queues.ts'

export const deliveryTables = `
  CREATE TABLE deliveries (
    id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    host TEXT NOT NULL,
    -- While it is pending: when it is due, or when its lease ends.
    claimable_at INTEGER,
    lease_until INTEGER,
    record TEXT NOT NULL
  ) STRICT;
  CREATE INDEX deliveries_of ON deliveries (task_id, id);
  CREATE INDEX deliveries_in_lane ON deliveries (tenant, host, claimable_at) WHERE claimable_at IS NOT NULL;
  CREATE INDEX deliveries_leased ON deliveries (lease_until, tenant, host) WHERE lease_until IS NOT NULL;
  CREATE INDEX deliveries_created ON deliveries (tenant, json_extract(record, '$.createdAt'), id);
`

/** Migration: nothing reads the deliveries that wait for another one by an index any more. */
export const withoutWaiting = 'DROP INDEX IF EXISTS deliveries_waiting;'

type Verbs = 'claimDeliveries' | 'recordAttempt' | 'returnDelivery' | 'deliveries' | 'redeliver' | 'replay'

/** What tasks use of deliveries, inside a write. */
export type Deliveries = {
  /** Existing ones stay unchanged. */
  add(deliveries: Delivery[]): void
  remove(taskId: string): void
}

export function openDeliveries(database: Database): { deliveries: Deliveries; verbs: Pick<Store, Verbs> } {
  const insert = database.prepare(
    `INSERT INTO deliveries (task_id, tenant, host, claimable_at, lease_until, record, id) VALUES (?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT DO NOTHING`,
  )
  const update = database.prepare('UPDATE deliveries SET claimable_at = ?, lease_until = ?, record = ? WHERE id = ?')
  const remove = database.prepare('DELETE FROM deliveries WHERE id = ?')
  const byId = database.records<Delivery>('SELECT record FROM deliveries WHERE id = ?')
  const ofTask = database.records<Delivery>('SELECT record FROM deliveries WHERE task_id = ? ORDER BY id')
  const queues = openDeliveryQueues(database)

  function put(delivery: Delivery): void {
    update.run(...changing(delivery), delivery.id)
    queues.refresh(delivery)
  }

  function releaseWaiting(id: string, at: number): void {
    const delivery = byId.get(id)
    if (delivery?.state === 'waiting') put({ ...delivery, state: 'pending', nextAttemptAt: at })
  }

  return {
    deliveries: {
      add: (made) => {
        for (const delivery of made) {
          insert.run(delivery.taskId, delivery.tenant, delivery.host, ...changing(delivery), delivery.id)
          queues.refresh(delivery)
        }
      },
      remove: (taskId) => {
        for (const delivery of ofTask.all(taskId)) {
          remove.run(delivery.id)
          queues.refresh(delivery)
        }
      },
    },
    verbs: {
      claimDeliveries: claiming(database, queues, put),
      recordAttempt: (id, epoch, attempt, next, release) =>
        database.write(() => {
          const delivery = byId.get(id)
          if (delivery?.epoch !== epoch) return 'lost'
          // No longer claimed: this claim recorded the attempt earlier, or returned the delivery.
          if (delivery.leaseUntil === null) return delivery.attempts.some(({ number }) => number === attempt.number) ? 'recorded' : 'lost'
          const { redelivery: _over, ...rest } = delivery
          put({ ...rest, ...next, leaseUntil: null, attempts: [...delivery.attempts, attempt] })
          if (release) releaseWaiting(release.id, release.at)
          return 'recorded'
        }),
      returnDelivery: async (id, epoch, at) => {
        await database.write(() => {
          const delivery = byId.get(id)
          if (delivery?.epoch === epoch && delivery.leaseUntil !== null) put({ ...delivery, nextAttemptAt: at, leaseUntil: null })
        })
      },
      deliveries: (taskId) => database.read(() => ofTask.all(taskId)),
      redeliver: (tenant, id, now) =>
        database.write(() => {
          const delivery = byId.get(id)
          if (delivery?.tenant !== tenant) return null
          const next = redeliver(delivery, now)
          if (next.outcome === 'due') put(next.delivery)
          return { delivery, ...next }
        }),
      replay: replaying(database, put),
    },
  }
}

/** Reads a page of the range by its index, whose entries go by time of creation and id. */
function replaying(database: Database, put: (delivery: Delivery) => void): Store['replay'] {
  const page = database.records<Delivery>(
    `SELECT record FROM deliveries
     WHERE tenant = ?1 AND json_extract(record, '$.createdAt') >= ?2 AND json_extract(record, '$.createdAt') < ?3
       AND (json_extract(record, '$.createdAt'), id) > (?4, ?5)
     ORDER BY json_extract(record, '$.createdAt'), id LIMIT ?6`,
  )

  return (tenant, range, after, now, limit) =>
    database.write(() => {
      const { createdAt, id } = after ?? { createdAt: -1, id: '' }
      const found = page.all(tenant, Math.max(range.since, createdAt), range.until, createdAt, id, limit + 1)
      const examined = found.slice(0, limit)
      const due = examined
        .filter((delivery) => isSelected(delivery, range))
        .map((delivery) => redeliver(delivery, now))
        .filter((next) => next.outcome === 'due')
      for (const { delivery } of due) put(delivery)
      const last = found.length > limit ? examined.at(-1) : undefined
      return { count: due.length, next: last ? { createdAt: last.createdAt, id: last.id } : null }
    })
}

/** Round-robin over the tenants, longest due first, as far as slots of the receiver, the tenant and the queue are free. */
function claiming(database: Database, queues: DeliveryQueues, put: (delivery: Delivery) => void): Store['claimDeliveries'] {
  const leased = database.prepare<DeliveryQueue>('SELECT tenant, host FROM deliveries WHERE lease_until > ?')
  const first = database.records<Delivery>(
    'SELECT record FROM deliveries WHERE tenant = ? AND host = ? AND claimable_at <= ? ORDER BY claimable_at LIMIT 1',
  )

  return (now, leaseUntil, caps) =>
    database.write(() => {
      const { limit, perHost, perTenant } = caps
      const hosts = slots(
        ({ host }) => host,
        () => perHost,
      )
      const tenants = slots(
        ({ tenant }) => tenant,
        () => perTenant,
      )
      const own = slots(queueName, (queue) => capOf(caps, queue))
      const kinds = [hosts, tenants, own]
      const take = (queue: DeliveryQueue) => kinds.forEach((kind) => kind.take(queue))
      leased.all(now).forEach(take)
      const claimed: Delivery[] = []
      for (let round = -1; round !== claimed.length && claimed.length < limit;) {
        round = claimed.length
        for (const queue of queues.longestDue(now, hosts.full(), tenants.full(), own.full(), limit - claimed.length)) {
          const found = first.get(queue.tenant, queue.host, now)
          // An earlier queue of this round may have taken the last slot of the receiver.
          if (!found || kinds.some((kind) => kind.isFull(queue))) continue
          const delivery = { ...found, epoch: found.epoch + 1, leaseUntil }
          put(delivery)
          take(queue)
          claimed.push(delivery)
        }
      }
      return claimed
    })
}

/** Counts the slots taken by each name. */
function slots(name: (queue: DeliveryQueue) => string, max: (queue: DeliveryQueue) => number) {
  const taken = new Map<string, number>()
  const full = new Set<string>()
  return {
    take(queue: DeliveryQueue): void {
      const count = (taken.get(name(queue)) ?? 0) + 1
      taken.set(name(queue), count)
      if (count >= max(queue)) full.add(name(queue))
    },
    isFull: (queue: DeliveryQueue) => full.has(name(queue)),
    /** Names without a free slot, as a JSON array. */
    full: () => JSON.stringify([...full]),
  }
}

/** `claimable_at`, `lease_until` and `record`: the columns that change after the relay. */
function changing(delivery: Delivery): [number | null, number | null, string] {
  const { state, nextAttemptAt, leaseUntil } = delivery
  const claimableAt = state === 'pending' && nextAttemptAt !== null ? Math.max(nextAttemptAt, leaseUntil ?? 0) : null
  return [claimableAt, leaseUntil, JSON.stringify(delivery)]
}
