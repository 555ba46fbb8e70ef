/**
 * Connection to one MongoDB database: client options, timeouts, verbs, closing. No driver error leaves the backend. There are no
 * transactions: each document is written on its own, though a command may contain many.
 */
import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import { MongoClient, MongoNetworkError, MongoServerError, type Collection, type Document, type MongoClientOptions } from 'mongodb'
import { Unavailable } from '../../../domain/errors.ts'
import { withTimeout } from '../../../concurrency/batching.ts'
import { DUPLICATE, toBackendError } from './driver-errors.ts'

/** An entity as a document: `_id` is its `id`. */
export type Stored<Entity extends { id: string }> = Omit<Entity, 'id'> & { _id: string }

export type Database = {
  collection<D extends Document>(name: string): Collection<D>
  /** Runs one verb. Failures of the server become `Unavailable`; programming errors pass unchanged. */
  run<T>(work: () => Promise<T>): Promise<T>
  /** The server's time, epoch milliseconds. */
  clock(): Promise<number>
  /** Waits for the verbs in progress, then disconnects. Later verbs are `Unavailable`. Idempotent. */
  close(): Promise<void>
}

/** Timeout of a whole verb, in case a step exceeds its own. */
export const VERB_TIMEOUT_MS = 60_000
/** Timeouts of one step: server selection; connecting, or waiting for an answer. */
const SELECTION_MS = 3000
const STEP_MS = 5000

/**
 * Options that the URL cannot override: reads and writes are those of a majority, which no failover rolls back. The driver retries a write
 * only where the server recognizes a repeated one (a replica set does); elsewhere it is sent once, and every verb may be repeated by its
 * caller. `timeoutMS` has no effect in this driver, so each step has its own timeout.
 */
const OPTIONS = {
  appName: 'tollgate',
  readPreference: 'primary',
  readConcern: { level: 'majority' },
  writeConcern: { w: 'majority', journal: true, wtimeoutMS: STEP_MS },
  serverSelectionTimeoutMS: SELECTION_MS,
  connectTimeoutMS: STEP_MS,
  waitQueueTimeoutMS: STEP_MS,
  // The driver's default of 2 is too low when a hundred requests arrive at once at a server that takes half a second for each answer.
  maxConnecting: 16,
  ignoreUndefined: true,
} satisfies MongoClientOptions

/** A migration or the creation of an index may run for a long time before it answers. */
const UPGRADE_MS = 30 * 60_000

/** Makes a client for `url`; throws the driver's error if the URL is invalid. `purpose` decides how long an answer may take. */
export function clientOf(url: string, purpose: 'upgrade' | 'request'): MongoClient {
  patchWrites()
  const isUpgrade = purpose === 'upgrade'
  const { wtimeoutMS, ...written } = OPTIONS.writeConcern
  return new MongoClient(url, {
    ...OPTIONS,
    socketTimeoutMS: isUpgrade ? UPGRADE_MS : STEP_MS,
    writeConcern: isUpgrade ? written : { ...written, wtimeoutMS },
  })
}

type Connection = { socket: Socket; error: Error | null; onError(error: Error): void; writeCommand(...command: unknown[]): Promise<void> }
let patched = false

/**
 * The driver (7.9) waits for ever for a write to a connection that closes meanwhile: it listens for 'drain' and 'error', but a closed
 * connection emits only 'close'. This affects commands written in the tick of the event loop in which the server closed the connection,
 * and, once they time out, commands larger than the buffers of a server that has stopped reading. None of the driver's timeouts applies
 * there. With this patch both are network errors.
 */
function patchWrites(): void {
  if (patched) return
  patched = true
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

/** Opens one database over a connected client. A verb that takes longer than `timeoutMs` is `Unavailable`. */
export function openDatabase(client: MongoClient, name: string, timeoutMs = VERB_TIMEOUT_MS): Database {
  const db = client.db(name)
  const inProgress = new Set<Promise<unknown>>()
  let closed: Promise<void> | undefined

  async function run<T>(work: () => Promise<T>): Promise<T> {
    if (closed) throw new Unavailable('store', new Error('the store is closed'))
    const answer = withTimeout('store', timeoutMs, work())
    inProgress.add(answer)
    try {
      return await answer
    } catch (error) {
      throw toBackendError(error)
    } finally {
      inProgress.delete(answer)
    }
  }

  async function close(): Promise<void> {
    await Promise.allSettled(inProgress)
    await client.close().catch(() => {}) // The server may be down.
  }

  async function clock(): Promise<number> {
    const { localTime } = await run(() => db.admin().command({ hello: 1 }))
    return Number(localTime)
  }

  return { collection: (name) => db.collection(name), run, clock, close: () => (closed ??= close()) }
}

/** Inserts a document unless another has its `_id` or another unique value. */
export async function add<D extends Document>(collection: Collection<D>, document: D): Promise<'added' | 'taken'> {
  try {
    // The driver's type is for documents without an `_id`; all of ours have one.
    await collection.insertOne(document as Parameters<typeof collection.insertOne>[0])
    return 'added'
  } catch (error) {
    if (isDuplicate(error)) return 'taken'
    throw error
  }
}

/** Whether a write violated a unique index. Only the code is the same on all servers. */
export function isDuplicate(error: unknown): boolean {
  return error instanceof MongoServerError && error.code === DUPLICATE
}

/** The document of an entity. */
export function toStored<Entity extends { id: string }>({ id, ...facts }: Entity): Stored<Entity> {
  return { _id: id, ...facts }
}

/** The entity of a document that was read without members that only indexes use. */
export function fromStored<Entity extends { id: string }>({ _id, ...facts }: { _id: string }): Entity {
  return { id: _id, ...facts } as unknown as Entity
}
