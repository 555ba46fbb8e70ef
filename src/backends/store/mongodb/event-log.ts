/**
 * Event log of each tenant in MongoDB. An event is inserted at the position after the last one that a majority has, and positions are unique: of two writers one
 * takes the position, and the other reads again. So there is never a gap below an event, and a write that lands late finds its position taken (decision 0025).
 */
import { setTimeout as pause } from 'node:timers/promises'
import { MongoBulkWriteError } from 'mongodb'
import { Busy } from '../../../domain/errors.ts'
import type { LoggedEvent } from '../../../domain/task.ts'
import { createBatcher } from '../../../concurrency/batching.ts'
import type { Store } from '../store.ts'
import { add, fromStored, toStored, type Database, type Stored } from './database.ts'
import { DEADLOCK, DUPLICATE } from './driver-errors.ts'
import type { Indexes } from './indexes.ts'

export const eventIndexes = {
  events: [
    // events, append
    { name: 'positions', key: { tenant: 1, position: 1 }, unique: true },
    // removeEvents
    { name: 'logged', key: { loggedAt: 1 } },
  ],
} satisfies Indexes

type StoredEvent = Stored<LoggedEvent> & { position: number }
/** The highest position of a tenant whose event was removed. */
type Floor = { _id: string; position: number }

/** What the relay of a task needs. */
export type EventLog = {
  /** Those that are there stay as they are. */
  append(events: LoggedEvent[]): Promise<void>
}

const MAX_WRITTEN = 32
/** How often other processes may take the position that this one is about to write. */
const MAX_TRIES = 100
const GIVE_WAY_MS = 20

export function openEventLog(database: Database): { log: EventLog; verbs: Pick<Store, 'events' | 'removeEvents'> } {
  const collection = database.collection<StoredEvent>('events')
  const floors = database.collection<Floor>('event_floors')

  /** One command at a time in this process, so that its own writers do not take positions from each other. */
  const append = createBatcher<LoggedEvent, void>({
    backend: 'store',
    async send(events) {
      const tenants = Map.groupBy(new Map(events.map((event) => [event.id, event])).values(), ({ tenant }) => tenant)
      const failures = new Map<string, unknown>()
      await Promise.all([...tenants].map(([tenant, own]) => appendTo(tenant, own).catch((failure: unknown) => failures.set(tenant, failure))))
      return events.map(({ tenant }) => (failures.has(tenant) ? { failure: failures.get(tenant) } : { answer: undefined }))
    },
    idOf: ({ id }) => id,
    shares: true,
    most: MAX_WRITTEN,
    weigh: ({ body }) => 500 + body.length,
  })

  async function appendTo(tenant: string, events: LoggedEvent[]): Promise<void> {
    let missing = events
    for (let turn = 0; turn < MAX_TRIES; turn++) {
      const next = await nextPosition(tenant)
      // In their order, and none after one that failed: what is inserted has no gap.
      const inserts = missing.map((event, n) => ({ insertOne: { document: { ...toStored(event), position: next + n } } }))
      try {
        await collection.bulkWrite(inserts, { ordered: true })
        return
      } catch (error) {
        if (!gaveWay(error)) throw error
      }
      const there = await collection.find({ _id: { $in: missing.map(({ id }) => id) } }, { projection: { _id: 1 } }).toArray()
      missing = missing.filter(({ id }) => !there.some(({ _id }) => _id === id))
      if (missing.length === 0) return
      await pause(Math.random() * GIVE_WAY_MS)
    }
    throw new Busy('store', new Error('other processes append events all the time'))
  }

  /** The events first: a removal raises the floor before it removes the last of them. */
  async function nextPosition(tenant: string): Promise<number> {
    const last = await collection.find({ tenant }, { projection: { position: 1 } }).sort({ position: -1 }).limit(1).next()
    const floor = await floors.findOne({ _id: tenant })
    return Math.max(last?.position ?? 0, floor?.position ?? 0) + 1
  }

  async function removeEvents(before: number, limit: number): Promise<number> {
    const old = await collection.find({ loggedAt: { $lt: before } }, { projection: { tenant: 1, position: 1 } }).sort({ loggedAt: 1 }).limit(limit).toArray()
    if (old.length === 0) return 0
    const tenants = Map.groupBy(old, ({ tenant }) => tenant)
    await Promise.all([...tenants].map(([tenant, removed]) => raise(tenant, Math.max(...removed.map(({ position }) => position)))))
    return (await collection.deleteMany({ _id: { $in: old.map(({ _id }) => _id) } })).deletedCount
  }

  async function raise(_id: string, position: number): Promise<void> {
    // Another process may be making the same one.
    for (;;) {
      if ((await floors.updateOne({ _id }, { $max: { position } })).matchedCount === 1) return
      if ((await add(floors, { _id, position })) === 'added') return
    }
  }

  return {
    log: { append: async (events) => void (await Promise.all(events.map(append))) },
    verbs: {
      events: (tenant, after, since, limit) =>
        database.run(async () => {
          const found = collection.find({ tenant, position: { $gt: after }, loggedAt: { $gte: since } })
          return (await found.sort({ position: 1 }).limit(limit).toArray()).map(fromStored<LoggedEvent & { position: number }>)
        }),
      removeEvents: (before, limit) => database.run(() => removeEvents(before, limit)),
    },
  }
}

/** Another process has the position, or has appended the same event. */
function gaveWay(error: unknown): boolean {
  if (!(error instanceof MongoBulkWriteError) || error.result.getWriteConcernError()) return false
  const failures = error.result.getWriteErrors()
  return failures.length > 0 && failures.every(({ code }) => code === DUPLICATE || code === DEADLOCK)
}
