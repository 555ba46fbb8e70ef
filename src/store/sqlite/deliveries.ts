/** Deliveries in SQLite: the delivery as JSON, and beside it what it is looked up by. */
import type { Delivery } from '../../tasks/task.ts'
import type { Store } from '../store.ts'
import type { Database } from './database.ts'

export const deliveryTables = `
  CREATE TABLE deliveries (
    id TEXT PRIMARY KEY,
    task_id TEXT NOT NULL,
    host TEXT NOT NULL,
    tenant TEXT NOT NULL,
    -- While it is pending: when it is due, or when its lease ends.
    claimable_at INTEGER,
    lease_until INTEGER,
    record TEXT NOT NULL
  ) STRICT;
  CREATE INDEX deliveries_of ON deliveries (task_id, id);
  CREATE INDEX deliveries_in_lane ON deliveries (host, tenant, claimable_at) WHERE claimable_at IS NOT NULL;
  CREATE INDEX deliveries_leased ON deliveries (lease_until, host, tenant) WHERE lease_until IS NOT NULL;

  -- What one tenant sends to one receiver, by its earliest delivery: never later than that, so a claim that finds nothing puts it right.
  CREATE TABLE lanes (
    host TEXT NOT NULL,
    tenant TEXT NOT NULL,
    claimable_at INTEGER NOT NULL,
    PRIMARY KEY (host, tenant)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX lanes_claimable ON lanes (claimable_at, host, tenant);
`

type Row = { record: string }
type Lane = { host: string; tenant: string }

/** What tasks need of their deliveries, inside a write. */
export type Deliveries = {
  /** Those that are there stay as they are. */
  add(deliveries: Delivery[]): void
  remove(taskId: string): void
}

export function openDeliveries(database: Database): {
  deliveries: Deliveries
  verbs: Pick<Store, 'claimDeliveries' | 'recordAttempt' | 'returnDelivery' | 'deliveries'>
} {
  const insert = database.prepare(
    'INSERT INTO deliveries (task_id, host, tenant, claimable_at, lease_until, record, id) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING',
  )
  const update = database.prepare('UPDATE deliveries SET claimable_at = ?, lease_until = ?, record = ? WHERE id = ?')
  const byId = database.prepare<Row>('SELECT record FROM deliveries WHERE id = ?')
  const ofTask = database.prepare<Row>('SELECT record FROM deliveries WHERE task_id = ? ORDER BY id')
  const removeOf = database.prepare('DELETE FROM deliveries WHERE task_id = ?')
  const refresh = refreshing(database)

  function add(deliveries: Delivery[]): void {
    for (const delivery of deliveries) {
      const { id, taskId, host, tenant } = delivery
      if (insert.run(taskId, host, tenant, ...changing(delivery), id) === 1) refresh(delivery)
    }
  }

  function put(delivery: Delivery): void {
    update.run(...changing(delivery), delivery.id)
    refresh(delivery)
  }

  function find(id: string): Delivery | null {
    const row = byId.get(id)
    return row ? parse(row) : null
  }

  return {
    deliveries: { add, remove: (taskId) => void removeOf.run(taskId) },
    verbs: {
      claimDeliveries: claiming(database, put, refresh),
      recordAttempt: (id, epoch, attempt, next, release) =>
        database.write(() => {
          const delivery = find(id)
          if (delivery?.epoch !== epoch) return 'lost'
          // Nobody holds it: this claim wrote the attempt down before, or gave the delivery back.
          if (delivery.leaseUntil === null) return delivery.attempts.some(({ number }) => number === attempt.number) ? 'recorded' : 'lost'
          put({ ...delivery, ...next, leaseUntil: null, attempts: [...delivery.attempts, attempt] })
          const waiting = release && find(release.id)
          if (waiting?.state === 'waiting') put({ ...waiting, state: 'pending', nextAttemptAt: release?.at ?? null })
          return 'recorded'
        }),
      returnDelivery: async (id, epoch, at) => {
        await database.write(() => {
          const delivery = find(id)
          if (delivery?.epoch === epoch && delivery.leaseUntil !== null) put({ ...delivery, nextAttemptAt: at, leaseUntil: null })
        })
      },
      deliveries: (taskId) => database.read(() => ofTask.all(taskId).map(parse)),
    },
  }
}

/** Keeps a lane at its earliest delivery. */
function refreshing(database: Database): (lane: Lane) => void {
  const earliest = database.prepare<{ claimable_at: number }>(
    'SELECT claimable_at FROM deliveries WHERE host = ? AND tenant = ? AND claimable_at IS NOT NULL ORDER BY claimable_at LIMIT 1',
  )
  const put = database.prepare('INSERT INTO lanes VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET claimable_at = excluded.claimable_at')
  const remove = database.prepare('DELETE FROM lanes WHERE host = ? AND tenant = ?')
  return ({ host, tenant }) => {
    const next = earliest.get(host, tenant)
    if (next) put.run(host, tenant, next.claimable_at)
    else remove.run(host, tenant)
  }
}

/**
 * Claims go round the lanes, longest due first: each gets one before any gets a second. Lanes of a full receiver or tenant are passed over
 * as a whole, so it does not matter how many deliveries are due in them.
 */
function claiming(database: Database, put: (delivery: Delivery) => void, refresh: (lane: Lane) => void): Store['claimDeliveries'] {
  const leased = database.prepare<Lane>('SELECT host, tenant FROM deliveries WHERE lease_until > ?')
  const lanes = database.prepare<Lane>(
    `SELECT host, tenant FROM lanes WHERE claimable_at <= ?
       AND host NOT IN (SELECT value FROM json_each(?)) AND tenant NOT IN (SELECT value FROM json_each(?))
     ORDER BY claimable_at, host, tenant LIMIT ?`,
  )
  const first = database.prepare<Row>(
    'SELECT record FROM deliveries WHERE host = ? AND tenant = ? AND claimable_at <= ? ORDER BY claimable_at LIMIT 1',
  )

  return (now, leaseUntil, { limit, perHost, perTenant }) =>
    database.write(() => {
      const [hosts, tenants] = [slots(perHost), slots(perTenant)]
      for (const { host, tenant } of leased.all(now)) {
        hosts.take(host)
        tenants.take(tenant)
      }
      const claimed: Delivery[] = []
      for (let visited = -1; visited !== 0 && claimed.length < limit; ) {
        visited = 0
        for (const { host, tenant } of lanes.all(now, hosts.full(), tenants.full(), limit - claimed.length)) {
          // The lanes before this one in the round may have taken the last slot.
          if (hosts.isFull(host) || tenants.isFull(tenant)) continue
          visited++
          const row = first.get(host, tenant, now)
          if (!row) {
            refresh({ host, tenant })
            continue
          }
          const found = parse(row)
          const delivery = { ...found, epoch: found.epoch + 1, leaseUntil }
          put(delivery)
          claimed.push(delivery)
          hosts.take(host)
          tenants.take(tenant)
        }
      }
      return claimed
    })
}

/** Counts the slots that are taken under each name. */
function slots(most: number): { take(name: string): void; isFull(name: string): boolean; full(): string } {
  const taken = new Map<string, number>()
  const isFull = (name: string) => (taken.get(name) ?? 0) >= most
  return {
    take: (name) => void taken.set(name, (taken.get(name) ?? 0) + 1),
    isFull,
    /** The full ones, as a JSON array. */
    full: () => JSON.stringify([...taken.keys()].filter(isFull)),
  }
}

/** `claimable_at`, `lease_until` and `record`. */
function changing(delivery: Delivery): [number | null, number | null, string] {
  const { state, nextAttemptAt, leaseUntil } = delivery
  const claimableAt = state === 'pending' && nextAttemptAt !== null ? Math.max(nextAttemptAt, leaseUntil ?? 0) : null
  return [claimableAt, leaseUntil, JSON.stringify(delivery)]
}

function parse(row: Row): Delivery {
  return JSON.parse(row.record) as Delivery
}
