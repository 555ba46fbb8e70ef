/** Heartbeats of processes and leases in MongoDB. */
import { MAX_SKEW_MS } from '../../../domain/subscription/clock-healing.ts'
import type { Store } from '../store.ts'
import { add, type Database } from './database.ts'

export function openHeartbeatsAndLeases(
  database: Database,
): Pick<Store, 'heartbeat' | 'heartbeats' | 'forgetInstance' | 'takeLease' | 'releaseLease'> {
  const beats = database.collection<{ _id: string; count: number }>('beats')
  const leases = database.collection<{ _id: string; owner: string; until: number }>('leases')

  async function heartbeat(instance: string, count: number): Promise<void> {
    // A late heartbeat must not count as a change, nor must one that lost the race to insert the document.
    const later = () => beats.updateOne({ _id: instance, count: { $lt: count } }, { $set: { count } })
    if ((await later()).matchedCount === 0 && (await add(beats, { _id: instance, count })) === 'taken') await later()
  }

  async function takeLease(name: string, owner: string, until: number, now: number): Promise<boolean> {
    const lease = await leases.findOne({ _id: name })
    if (!lease) return (await add(leases, { _id: name, owner, until })) === 'added'
    const isAhead = lease.until > until + MAX_SKEW_MS
    if (isAhead) return (await leases.updateOne({ _id: name, until: lease.until }, { $set: { owner, until } })).matchedCount === 1
    if (lease.owner !== owner && lease.until > now) return false
    // A late renewal must not shorten a later one.
    const free = { _id: name, $or: [{ owner }, { until: { $lte: now } }] }
    return (await leases.updateOne(free, { $set: { owner }, $max: { until } })).matchedCount === 1
  }

  return {
    heartbeat,
    heartbeats: async () => (await beats.find().sort({ _id: 1 }).toArray()).map(({ _id, count }) => ({ instance: _id, count })),
    forgetInstance: async (instance) => void (await beats.deleteOne({ _id: instance })),
    takeLease,
    releaseLease: async (name, owner) => void (await leases.deleteOne({ _id: name, owner })),
  }
}
