/** What processes tell each other through MongoDB: that they live, and who of them has a lease. */
import type { Store } from '../store.ts'
import { add, type Database } from './database.ts'

type Beat = { _id: string; count: number }
type Lease = { _id: string; owner: string; until: number }

export function openProcesses(database: Database): Pick<Store, 'clock' | 'heartbeat' | 'heartbeats' | 'forgetInstance' | 'takeLease' | 'releaseLease'> {
  const beats = database.collection<Beat>('beats')
  const leases = database.collection<Lease>('leases')

  async function heartbeat(instance: string, count: number): Promise<void> {
    // A beat that lands late must not look like a change; nor does it when another made the document first.
    const later = () => beats.updateOne({ _id: instance, count: { $lt: count } }, { $set: { count } })
    if ((await later()).matchedCount === 0 && (await add(beats, { _id: instance, count })) === 'taken') await later()
  }

  async function takeLease(name: string, owner: string, until: number, now: number): Promise<boolean> {
    const lease = await leases.findOne({ _id: name })
    if (!lease) return (await add(leases, { _id: name, owner, until })) === 'added'
    if (lease.owner !== owner && lease.until > now) return false
    // A renewal that lands late must not shorten what a later one prolonged.
    const free = { _id: name, $or: [{ owner }, { until: { $lte: now } }] }
    return (await leases.updateOne(free, { $set: { owner }, $max: { until } })).matchedCount === 1
  }

  return {
    clock: database.clock,
    heartbeat: (instance, count) => database.ask(() => heartbeat(instance, count)),
    heartbeats: () =>
      database.ask(async () => (await beats.find().sort({ _id: 1 }).toArray()).map(({ _id, count }) => ({ instance: _id, count }))),
    forgetInstance: async (instance) => void (await database.ask(() => beats.deleteOne({ _id: instance }))),
    takeLease: (...lease) => database.ask(() => takeLease(...lease)),
    releaseLease: async (name, owner) => void (await database.ask(() => leases.deleteOne({ _id: name, owner }))),
  }
}
