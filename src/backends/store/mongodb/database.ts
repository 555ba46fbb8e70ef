/**
 * One MongoDB database: how it is reached, asked and left, and what of its driver's errors passes the backend: nothing. Each
 * document is written by itself, though a command may bring many; there is no transaction here.
 */
import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import { MongoClient, MongoNetworkError, MongoServerError, type Collection, type Document, type MongoClientOptions } from 'mongodb'
import { Unavailable } from '../../../domain/errors.ts'
import { withTimeout } from '../../../concurrency/batching.ts'
import { DUPLICATE, outward } from './driver-errors.ts'

/** A noun under its id: `_id` is its `id`. */
export type Stored<Noun extends { id: string }> = Omit<Noun, 'id'> & { _id: string }

export type Database = {
  collection<D extends Document>(name: string): Collection<D>
  /** Runs the work of one verb. What goes wrong with the server is `Unavailable`; a mistake of ours stays what it is. */
  ask<T>(work: () => Promise<T>): Promise<T>
  /** The server's time, epoch milliseconds. */
  clock(): Promise<number>
  /** Lets what is under way end, then leaves. From then on everything is `Unavailable`. Closing again does nothing. */
  close(): Promise<void>
}

/** Longest that a verb takes, should a step outlast its own limits. */
export const LONGEST_MS = 60_000
/** Longest that one step of a verb waits: for a server, for a connection to it, for its answer. */
const SELECTION_MS = 3000
const STEP_MS = 5000

/**
 * What we ask of every server, whatever the URL says: an answer is of what a majority has and no failover takes back. Retries are the
 * driver's own, where the server tells a repeated write from a new one (a replica set does); elsewhere a write is sent once, and every verb
 * may be asked for again. `timeoutMS` does nothing in this driver, so each step has a limit of its own.
 */
const OPTIONS = {
  appName: 'tollgate',
  readPreference: 'primary',
  readConcern: { level: 'majority' },
  writeConcern: { w: 'majority', journal: true, wtimeoutMS: STEP_MS },
  serverSelectionTimeoutMS: SELECTION_MS,
  connectTimeoutMS: STEP_MS,
  waitQueueTimeoutMS: STEP_MS,
  // Two at a time, the driver's default, are too few where a server takes half a second for each answer and a hundred requests come at once.
  maxConnecting: 16,
  ignoreUndefined: true,
} satisfies MongoClientOptions

/** An upgrade or an index may be at work for long before it answers. */
const UPGRADE_MS = 30 * 60_000

/** Makes a client of `url`; throws the driver's error if that is none. `patience`: how long an answer may take. */
export function clientOf(url: string, patience: 'upgrade' | 'request'): MongoClient {
  mendWrites()
  const isUpgrade = patience === 'upgrade'
  const { wtimeoutMS, ...written } = OPTIONS.writeConcern
  return new MongoClient(url, {
    ...OPTIONS,
    socketTimeoutMS: isUpgrade ? UPGRADE_MS : STEP_MS,
    writeConcern: isUpgrade ? written : { ...written, wtimeoutMS },
  })
}

type Connection = { socket: Socket; error: Error | null; onError(error: Error): void; writeCommand(...command: unknown[]): Promise<void> }
let mended = false

/**
 * The driver (7.9) waits for ever for a write to a connection that ends meanwhile: it listens for 'drain' and 'error', and the end of a connection is 'close' alone. So it is with what is written in
 * the turn of the event loop in which the server ended it, which is when we send what the turn has brought; and with a command that is larger than the buffers of a server that
 * has stopped reading, once its time is over. None of the driver's limits counts there. Now both are errors of the network.
 */
function mendWrites(): void {
  if (mended) return
  mended = true
  const { Connection } = createRequire(import.meta.url)('mongodb/lib/cmap/connection.js') as { Connection: { prototype: Connection } }
  const write = Connection.prototype.writeCommand
  Connection.prototype.writeCommand = async function (this: Connection, ...command: unknown[]) {
    const { socket } = this
    const failure = () => {
      const error = this.error ?? new MongoNetworkError('the connection ended')
      this.onError(error)
      return error
    }
    if (socket.destroyed) throw failure()
    const ended = Promise.withResolvers<never>()
    const end = () => ended.reject(failure())
    socket.once('close', end)
    try {
      await Promise.race([ended.promise, write.apply(this, command)])
    } finally {
      socket.off('close', end)
    }
  }
}

/** Serves one database over a client that is connected. A verb that takes longer than `longestMs` is `Unavailable`. */
export function serve(client: MongoClient, name: string, longestMs = LONGEST_MS): Database {
  const db = client.db(name)
  const underWay = new Set<Promise<unknown>>()
  let closed: Promise<void> | undefined

  async function ask<T>(work: () => Promise<T>): Promise<T> {
    if (closed) throw new Unavailable('store', new Error('the store is closed'))
    const answer = withTimeout('store', longestMs, work())
    underWay.add(answer)
    try {
      return await answer
    } catch (error) {
      throw outward(error)
    } finally {
      underWay.delete(answer)
    }
  }

  async function close(): Promise<void> {
    await Promise.allSettled(underWay)
    await client.close().catch(() => {}) // The server may be away; we leave all the same.
  }

  async function clock(): Promise<number> {
    const { localTime } = await ask(() => db.admin().command({ hello: 1 }))
    return Number(localTime)
  }

  return { collection: (name) => db.collection(name), ask, clock, close: () => (closed ??= close()) }
}

/** Puts a document there unless one has its `_id`, or something else that is unique. */
export async function add<D extends Document>(collection: Collection<D>, document: D): Promise<'added' | 'taken'> {
  try {
    // The driver's own type of a document without an `_id` is of no use where all have one.
    await collection.insertOne(document as Parameters<typeof collection.insertOne>[0])
    return 'added'
  } catch (error) {
    if (isDuplicate(error)) return 'taken'
    throw error
  }
}

/** Whether a write broke a unique index. It says so by its code alone: what else such an error holds differs between servers. */
export function isDuplicate(error: unknown): boolean {
  return error instanceof MongoServerError && error.code === DUPLICATE
}

export function stored<Noun extends { id: string }>({ id, ...facts }: Noun): Stored<Noun> {
  return { _id: id, ...facts }
}

/** The noun of a document that was read without what only its indexes need. */
export function nounOf<Noun extends { id: string }>({ _id, ...facts }: { _id: string }): Noun {
  return { id: _id, ...facts } as unknown as Noun
}
