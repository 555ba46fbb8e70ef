/**
 * Delivery queues in SQLite, one per tenant and receiver, each with the time at which its earliest delivery is due; a tenant has that of its
 * earliest queue. So a claim skips a full receiver or tenant in one step, whatever its backlog. The tables are named `delivery_lanes` and
 * `delivery_tenants`.
 */
import type { DeliveryQueue } from '../task-store.ts'
import type { Database } from './database.ts'

export const deliveryQueueTables = `
  CREATE TABLE delivery_lanes (
    tenant TEXT NOT NULL,
    host TEXT NOT NULL,
    claimable_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, host)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX delivery_lanes_claimable ON delivery_lanes (tenant, claimable_at, host);

  CREATE TABLE delivery_tenants (
    tenant TEXT PRIMARY KEY,
    claimable_at INTEGER NOT NULL
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX delivery_tenants_claimable ON delivery_tenants (claimable_at, tenant);
`

export type DeliveryQueues = {
  /** Updates the times after a change of the queue's deliveries, in the same write. */
  refresh(queue: DeliveryQueue): void
  /**
   * The tenants that are due for the longest time at `now`, each with its queue that is due for the longest time; without the full receivers,
   * tenants and queues (JSON arrays; a queue is named by `queueName`).
   */
  longestDue(now: number, fullHosts: string, fullTenants: string, fullQueues: string, limit: number): DeliveryQueue[]
}

export function openDeliveryQueues(database: Database): DeliveryQueues {
  type Time = { at: number }
  const ofQueue = database.prepare<Time>(
    `SELECT claimable_at AS at FROM deliveries WHERE tenant = ? AND host = ? AND claimable_at IS NOT NULL
     ORDER BY claimable_at LIMIT 1`,
  )
  const ofTenant = database.prepare<Time>('SELECT claimable_at AS at FROM delivery_lanes WHERE tenant = ? ORDER BY claimable_at LIMIT 1')
  const onto = 'ON CONFLICT DO UPDATE SET claimable_at = excluded.claimable_at WHERE claimable_at <> excluded.claimable_at'
  const putQueue = database.prepare(`INSERT INTO delivery_lanes (tenant, host, claimable_at) VALUES (?, ?, ?) ${onto}`)
  const putTenant = database.prepare(`INSERT INTO delivery_tenants (tenant, claimable_at) VALUES (?, ?) ${onto}`)
  const removeQueue = database.prepare('DELETE FROM delivery_lanes WHERE tenant = ? AND host = ?')
  const removeTenant = database.prepare('DELETE FROM delivery_tenants WHERE tenant = ?')
  // CROSS JOIN makes the tenants the outer loop, in index order: no sort.
  const longestDue = database.prepare<DeliveryQueue>(
    `SELECT lane.tenant, lane.host FROM delivery_tenants AS due CROSS JOIN delivery_lanes AS lane
       ON lane.tenant = due.tenant AND lane.host = (
         SELECT host FROM delivery_lanes WHERE tenant = due.tenant AND claimable_at <= ?1
           AND host NOT IN (SELECT value FROM json_each(?2)) AND tenant || ' ' || host NOT IN (SELECT value FROM json_each(?4))
         ORDER BY claimable_at LIMIT 1
       )
     WHERE due.claimable_at <= ?1 AND due.tenant NOT IN (SELECT value FROM json_each(?3))
     ORDER BY due.claimable_at LIMIT ?5`,
  )

  return {
    refresh: ({ tenant, host }) => {
      const queue = ofQueue.get(tenant, host)
      if (queue) putQueue.run(tenant, host, queue.at)
      else removeQueue.run(tenant, host)
      const first = ofTenant.get(tenant)
      if (first) putTenant.run(tenant, first.at)
      else removeTenant.run(tenant)
    },
    longestDue: (...values) => longestDue.all(...values),
  }
}
