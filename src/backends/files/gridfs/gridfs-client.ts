/** MongoDB client of the files backend: timeouts, majority concerns, and the classification of failures. */
import { setTimeout } from 'node:timers/promises'
import {
  MongoBulkWriteError,
  MongoClient,
  MongoError,
  MongoNetworkError,
  MongoServerError,
  MongoServerSelectionError,
  type Db,
} from 'mongodb'
import { Unavailable } from '../../../domain/errors.ts'

/** The database of a STORE_URL that names none. */
const DATABASE = 'tollgate'
/** The driver's heartbeat detects a silent server, and fails the operations that wait for it. */
const TIMEOUTS = {
  connectTimeoutMS: 3_000,
  serverSelectionTimeoutMS: 3_000,
  waitQueueTimeoutMS: 5_000,
  socketTimeoutMS: 10_000,
  heartbeatFrequencyMS: 3_000,
}
const ATTEMPTS = 3
const PAUSE_MS = 100

/**
 * Connects, and prepares the database. Throws an Error with one sentence for the operator when a retry would not help, else `Unavailable`.
 * A failed attempt closes its client: a client whose first connection failed stays broken.
 */
export async function connect(storeUrl: string, prepare: (db: Db) => Promise<void>): Promise<{ client: MongoClient; db: Db }> {
  if (!/^mongodb(\+srv)?:\/\//.test(storeUrl)) {
    throw new Error(
      'FILES_URL is gridfs:, which uses the MongoDB of STORE_URL, but STORE_URL is not a MongoDB URL: set STORE_URL to mongodb://…, or FILES_URL to s3://… or disk:….',
    )
  }
  const client = clientOf(storeUrl)
  try {
    await client.connect()
    const db = client.db(/^[^/]+\/\/[^/]+\/[^?]/.test(storeUrl) ? undefined : DATABASE)
    await prepare(db)
    return { client, db }
  } catch (error) {
    await client.close().catch(() => undefined)
    throw error instanceof Unavailable ? error : (refusalOf(error) ?? new Unavailable('files', error))
  }
}

function clientOf(storeUrl: string): MongoClient {
  try {
    return new MongoClient(storeUrl, {
      appName: 'tollgate-files',
      ...TIMEOUTS,
      readPreference: 'primary',
      readConcern: { level: 'majority' },
      writeConcern: { w: 'majority', journal: true, wtimeoutMS: 10_000 },
    })
  } catch (error) {
    // The driver's message may quote the address, so it is only logged as the cause.
    throw new Error(
      'STORE_URL cannot be read as the address of a MongoDB: it may be mongodb://<user>:<password>@<host>:<port>,…/<database>?<options>.',
      { cause: error },
    )
  }
}

// https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml
const UNAUTHORIZED = 13
const AUTHENTICATION_FAILED = 18
const DUPLICATE = 11000
/** Of MongoDB Atlas. */
const ATLAS_ERROR = 8000

/** The sentence for a permanent failure, which the operator must resolve. */
function refusalOf(error: unknown): Error | null {
  const code = (error as { code?: unknown } | null)?.code
  const sentence =
    error instanceof MongoServerError
      ? sentenceOf(error)
      : code === 'ENOENT' || code === 'EACCES'
        ? 'a file that STORE_URL names for TLS cannot be read.'
        : null
  return sentence === null ? null : new Error(`The files in MongoDB: ${sentence}`, { cause: error })
}

function sentenceOf({ code }: MongoServerError): string | null {
  switch (code) {
    case AUTHENTICATION_FAILED:
    case ATLAS_ERROR:
      return 'the server refuses us: check the user, the password and authSource in STORE_URL.'
    case UNAUTHORIZED:
      return 'the server does not let us read and write: give the user of STORE_URL the role readWrite on its database.'
    default:
      return null
  }
}

/** Maps errors of the driver to `Unavailable`, with their cause. */
export async function guard<T>(action: () => Promise<T>): Promise<T> {
  try {
    return await action()
  } catch (error) {
    throw error instanceof MongoError ? new Unavailable('files', error) : error
  }
}

/** The same for an idempotent action: retries temporary failures. */
export async function patiently<T>(action: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await guard(action)
    } catch (error) {
      if (attempt === ATTEMPTS || !(error instanceof Unavailable) || !mayPass(error.cause)) throw error
      await setTimeout(PAUSE_MS * 5 ** (attempt - 1))
    }
  }
}

/** True when a read and a second attempt may succeed: the outcome is unknown (no answer, connection lost), or another writer was first (a duplicate key). */
export function mayPass(thrown: unknown): boolean {
  // For several documents, the driver wraps their errors in one.
  const error = thrown instanceof MongoBulkWriteError && thrown.errorResponse instanceof Error ? thrown.errorResponse : thrown
  if (error instanceof MongoNetworkError || error instanceof MongoServerSelectionError || isDuplicate(error)) return true
  return error instanceof MongoError && error.hasErrorLabel('RetryableWriteError')
}

/** True when all errors are duplicate keys. */
export function isDuplicate(error: unknown): boolean {
  if (error instanceof MongoBulkWriteError) {
    const errors = Array.isArray(error.writeErrors) ? error.writeErrors : [error.writeErrors]
    return errors.length > 0 && errors.every(({ code }) => code === DUPLICATE)
  }
  return error instanceof MongoServerError && error.code === DUPLICATE
}
