/**
 * The MongoDB client of the store and of the files: options that the URL cannot override, timeouts of a step, and a mend of the driver.
 */
import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import { MongoClient, MongoNetworkError, type MongoClientOptions } from 'mongodb'
import { invalidUrl } from './driver-errors.ts'

const DATABASE = 'tollgate'

/** Timeouts of one step: server selection; connecting, or waiting for an answer. */
const SELECTION_MS = 3000
const STEP_MS = 5000

/**
 * Options that the URL cannot override: reads and writes are those of a majority, which no failover rolls back. The driver retries a write
 * only where the server recognizes a repeated one (a replica set does); elsewhere it is sent once, and every verb may be repeated by its
 * caller. `timeoutMS` has no effect in this driver, so each step has its own timeout.
 */
const OPTIONS = {
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

/**
 * What a client is for. An upgrade (a migration, the creation of an index) may run for a long time before it answers. The files' heartbeat
 * finds a silent server, and fails the commands that wait for it.
 */
const PURPOSES = {
  request: { appName: 'tollgate', socketTimeoutMS: STEP_MS },
  upgrade: { appName: 'tollgate', socketTimeoutMS: 30 * 60_000 },
  files: { appName: 'tollgate-files', socketTimeoutMS: 2 * STEP_MS, heartbeatFrequencyMS: 3000 },
} satisfies Record<string, MongoClientOptions>

/** Makes a client for `url`, not yet connected. Throws an Error with a sentence for the operator if the URL is invalid. */
export function clientOf(url: string, purpose: keyof typeof PURPOSES): MongoClient {
  patchWrites()
  const { wtimeoutMS, ...written } = OPTIONS.writeConcern
  try {
    const client = new MongoClient(url, {
      ...OPTIONS,
      ...PURPOSES[purpose],
      writeConcern: purpose === 'upgrade' ? written : { ...written, wtimeoutMS },
    })
    client.db(databaseOf(url))
    return client
  } catch (error) {
    throw invalidUrl(error)
  }
}

/** The characters that no name of a database has: servers would refuse each command, as if it could succeed later. */
const NOT_IN_NAMES = /[/\\. "$\0]/

/** The database that `url` names, `tollgate` if it names none. Throws like `clientOf`. */
export function databaseOf(url: string): string {
  const [, path = ''] = /^[^:]+:\/\/[^/?]*\/([^?]*)/.exec(url) ?? []
  try {
    const name = decodeURIComponent(path)
    if (NOT_IN_NAMES.test(name)) throw new Error(`a name of a database has none of ${NOT_IN_NAMES.source}`)
    return name || DATABASE
  } catch (error) {
    throw invalidUrl(error)
  }
}

/** The server and the database, without credentials. */
export function placeOf({ options }: MongoClient, database: string): string {
  return `${options.srvHost ?? options.hosts.join(',')}/${database}`
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
