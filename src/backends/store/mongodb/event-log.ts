/**
 * Event log of each tenant in MongoDB. An event is inserted at the position after the last one that a majority has, and positions are
 * unique: of two writers one takes the position, and the other reads again. So there is never a gap below an event, and a write that lands
 * late finds its position taken (decision 0025).
 */
import { setTimeout as pause } from 'node:timers/promises'
import { MongoBulkWriteError } from 'mongodb'
import { Busy } from '../../../domain/errors.ts'
import { idAt, type LoggedEvent } from '../../../domain/task.ts'
import { createBatcher } from '../../../concurrency/batching.ts'
import { putNewest } from '../../../domain/long-lived-maps.ts'
import type { Store } from '../store.ts'
import { add, fromStored, toStored, type Database, type Stored } from './database.ts'
import { DEADLOCK, DUPLICATE } from '../../mongodb/driver-errors.ts'
import type { Indexes } from './indexes.ts'

export const eventIndexes = {
  events: [
    // events, append
    { name: 'positions', key: { tenant: 1, position: 1 }, unique: true },
  ],
} satisfies Indexes

type StoredEvent = Stored<LoggedEvent> & { position: number }
/** The highest position of a tenant whose event was removed; that of `ALL` is for all tenants. */
type Floor = { _id: string; position: number }
const ALL = ''

/** What the relay of a task needs. */
export type EventLog = {
  /** Those that are there stay as they are. Returns the body of each event in the log, by its id. */
  append(events: LoggedEvent[]): Promise<Map<string, string>>
}

const MAX_WRITTEN = 64
/** How often other processes may take the position that this one is about to write. */
const MAX_TRIES = 100
const GIVE_WAY_MS = 20
/**
 * How long a position that this process took counts as the last one of its tenant, unless an insert proves otherwise. No event is removed
 * within a day, so no position after it is free again.
 */
const REMEMBERED_MS = 60_000
const MAX_REMEMBERED = 10_000

/** `position` is null where another process appends events of the tenant as well: its last one must be read. */
type Last = { position: number | null; sinceMs: number }
type Batch = { tenant: string; events: LoggedEvent[] }

export function openEventLog(database: Database): { log: EventLog; verbs: Pick<Store, 'events' | 'removeEvents' | 'raiseEventFloor'> } {
  const collection = database.collection<StoredEvent>('events')
  const floors = database.collection<Floor>('event_floors')
  const lasts = new Map<string, Last>()

  /** One command at a time in this process, so that its own writers do not take positions from each other. */
  const append = createBatcher<LoggedEvent, string>({
    backend: 'store',
    async send(events) {
      const unique = new Map(events.map((event) => [event.id, event]))
      // In one order in all processes: their commands cannot deadlock.
      const tenants = [...Map.groupBy(unique.values(), ({ tenant }) => tenant)]
        .map(([tenant, own]) => ({ tenant, events: own }))
        .sort((a, b) => (a.tenant < b.tenant ? -1 : 1))
      const isShared = ({ tenant }: Batch) => lastOf(tenant)?.position === null
      const bodies = new Map<string, string>()
      const failures = new Map<string, unknown>()
      const failed = (batches: Batch[]) => (failure: unknown) => batches.forEach(({ tenant }) => failures.set(tenant, failure))
      const alone = tenants.filter((batch) => !isShared(batch))
      await Promise.all([
        appendTogether(alone, bodies).catch(failed(alone)),
        ...tenants.filter(isShared).map((batch) => appendTo(batch, bodies).catch(failed([batch]))),
      ])
      return events.map(({ id, tenant }) => {
        if (failures.has(tenant)) return { failure: failures.get(tenant) }
        return { answer: bodies.get(id) ?? unique.get(id)!.body }
      })
    },
    idOf: ({ id }) => id,
    shares: true,
    most: MAX_WRITTEN,
    weigh: ({ body }) => 500 + body.length,
  })

  /** In one command, after the positions that this process took last. Where another process was first, each tenant by itself. */
  async function appendTogether(batches: Batch[], bodies: Map<string, string>): Promise<void> {
    const placed = (
      await Promise.all(
        batches.map(async ({ tenant, events }) => at(events, (lastOf(tenant)?.position ?? (await lastPosition(tenant))) + 1)),
      )
    ).flat()
    if (placed.length === 0) return
    for (const { tenant } of batches) lasts.delete(tenant)
    const taken = await insert(placed)
    if (taken === null) return remember(placed)
    remember([{ tenant: taken.tenant, position: null }])
    await Promise.all(batches.map((batch) => appendTo(batch, bodies, true)))
  }

  /** `mayBeThere`: an earlier command may have inserted some. The bodies of those that are there are added to `bodies`. */
  async function appendTo({ tenant, events }: Batch, bodies: Map<string, string>, mayBeThere = false): Promise<void> {
    let missing = events
    for (let turn = 0; turn < MAX_TRIES; turn++) {
      if (turn > 0 || mayBeThere) {
        const there = await collection.find({ _id: { $in: missing.map(({ id }) => id) } }, { projection: { body: 1 } }).toArray()
        for (const { _id, body } of there) bodies.set(_id, body)
        missing = missing.filter(({ id }) => !bodies.has(id))
      }
      if (missing.length === 0) return
      if ((await insert(at(missing, (await lastPosition(tenant)) + 1))) === null) return
      await pause(Math.random() * GIVE_WAY_MS)
    }
    throw new Busy('store', new Error('other processes append events all the time'))
  }

  /**
   * In their order, and none after one that failed: what is inserted has no gap. Returns the first whose position or id is taken; null when
   * all are inserted.
   */
  async function insert(placed: StoredEvent[]): Promise<StoredEvent | null> {
    try {
      await collection.bulkWrite(
        placed.map((document) => ({ insertOne: { document } })),
        { ordered: true },
      )
      return null
    } catch (error) {
      return placed[takenAt(error)] ?? Promise.reject(error)
    }
  }

  /** The events first: a removal raises the floor before it removes the last of them. */
  async function lastPosition(tenant: string): Promise<number> {
    const last = await collection.findOne({ tenant }, { projection: { position: 1 }, sort: { position: -1 } })
    const below = await floors.find({ _id: { $in: [tenant, ALL] } }).toArray()
    return Math.max(last?.position ?? 0, ...below.map(({ position }) => position))
  }

  function lastOf(tenant: string): Last | undefined {
    const last = lasts.get(tenant)
    return last && performance.now() - last.sinceMs < REMEMBERED_MS ? last : undefined
  }

  function remember(placed: { tenant: string; position: number | null }[]): void {
    for (const { tenant, position } of placed) putNewest(lasts, tenant, { position, sinceMs: performance.now() }, MAX_REMEMBERED)
  }

  async function removeEvents(before: number, limit: number): Promise<number> {
    // Found by their ids: what was logged before is of a task that was created before.
    const loggedBefore = { _id: { $lt: idAt(before) }, loggedAt: { $lt: before } }
    const old = await collection.find(loggedBefore, { projection: { tenant: 1, position: 1 }, limit }).toArray()
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
    log: { append: async (events) => new Map(await Promise.all(events.map(async (event) => [event.id, await append(event)] as const))) },
    verbs: {
      events: async (tenant, after, since, limit) => {
        const found = collection.find({ tenant, position: { $gt: after }, loggedAt: { $gte: since } })
        return (await found.sort({ position: 1 }).limit(limit).toArray()).map(fromStored<LoggedEvent & { position: number }>)
      },
      removeEvents,
      raiseEventFloor: (position) => raise(ALL, position),
    },
  }
}

/** The index of the insert whose position or id is taken; -1 for any other error. */
function takenAt(error: unknown): number {
  if (!(error instanceof MongoBulkWriteError) || error.result.getWriteConcernError()) return -1
  const failures = error.result.getWriteErrors()
  return failures.every(({ code }) => code === DUPLICATE || code === DEADLOCK) ? Math.min(...failures.map(({ index }) => index)) : -1
}

function at(events: LoggedEvent[], first: number): StoredEvent[] {
  return events.map((event, n) => ({ ...toStored(event), position: first + n }))
}
