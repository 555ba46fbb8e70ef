/**
 * DeliveryQueues in SQLite: what one tenant sends to one receiver. A lane stands at the time of its earliest delivery, and a tenant at that of its
 * earliest lane, so that a claim passes over a full receiver or tenant in one step, however much is due there.
 */
import type { Database } from './database.ts'

export const laneTables = `
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

export type DeliveryQueue = { tenant: string; host: string }

export type DeliveryQueues = {
  /** Follows a change of a lane's deliveries, inside its write. */
  refresh(lane: DeliveryQueue): void
  /**
   * The tenants that have waited longest at `now`, each with the lane of it that has waited longest; without the full receivers and tenants
   * (JSON arrays).
   */
  longestDue(now: number, fullHosts: string, fullTenants: string, limit: number): DeliveryQueue[]
}

export function openDeliveryQueues(database: Database): DeliveryQueues {
  type Time = { at: number }
  const ofLane = database.prepare<Time>(
    `SELECT claimable_at AS at FROM deliveries WHERE tenant = ? AND host = ? AND claimable_at IS NOT NULL
     ORDER BY claimable_at LIMIT 1`,
  )
  const ofTenant = database.prepare<Time>(
    'SELECT claimable_at AS at FROM delivery_lanes WHERE tenant = ? ORDER BY claimable_at LIMIT 1',
  )
  const onto = 'ON CONFLICT DO UPDATE SET claimable_at = excluded.claimable_at WHERE claimable_at <> excluded.claimable_at'
  const putLane = database.prepare(`INSERT INTO delivery_lanes (tenant, host, claimable_at) VALUES (?, ?, ?) ${onto}`)
  const putTenant = database.prepare(`INSERT INTO delivery_tenants (tenant, claimable_at) VALUES (?, ?) ${onto}`)
  const removeLane = database.prepare('DELETE FROM delivery_lanes WHERE tenant = ? AND host = ?')
  const removeTenant = database.prepare('DELETE FROM delivery_tenants WHERE tenant = ?')
  // CROSS JOIN keeps the tenants outside, in their order: nothing has to be sorted.
  const longestDue = database.prepare<DeliveryQueue>(
    `SELECT lane.tenant, lane.host FROM delivery_tenants AS due CROSS JOIN delivery_lanes AS lane
       ON lane.tenant = due.tenant AND lane.host = (
         SELECT host FROM delivery_lanes WHERE tenant = due.tenant AND claimable_at <= ?1
           AND host NOT IN (SELECT value FROM json_each(?2)) ORDER BY claimable_at LIMIT 1
       )
     WHERE due.claimable_at <= ?1 AND due.tenant NOT IN (SELECT value FROM json_each(?3))
     ORDER BY due.claimable_at LIMIT ?4`,
  )

  return {
    refresh: ({ tenant, host }) => {
      const lane = ofLane.get(tenant, host)
      if (lane) putLane.run(tenant, host, lane.at)
      else removeLane.run(tenant, host)
      const first = ofTenant.get(tenant)
      if (first) putTenant.run(tenant, first.at)
      else removeTenant.run(tenant)
    },
    longestDue: (...values) => longestDue.all(...values),
  }
}
