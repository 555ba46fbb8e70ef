/** The MongoDB of the files: connecting, and repeating what failed for a moment. */
import { setTimeout } from 'node:timers/promises'
import type { Db, MongoClient } from 'mongodb'
import { Unavailable } from '../../../domain/errors.ts'
import { clientOf, databaseOf, placeOf } from '../../mongodb/client.ts'
import { isDuplicate, isOutcomeUnknown, openingFailure, toBackendError } from '../../mongodb/driver-errors.ts'

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
  const client = clientOf(storeUrl, 'files')
  const db = client.db(databaseOf(storeUrl))
  try {
    await client.connect()
    await prepare(db)
    return { client, db }
  } catch (error) {
    await client.close().catch(() => undefined)
    throw openingFailure('files', error, placeOf(client, db.databaseName))
  }
}

/** Maps errors of the driver to `Unavailable`, with their cause. */
export async function guard<T>(action: () => Promise<T>): Promise<T> {
  try {
    return await action()
  } catch (error) {
    throw toBackendError('files', error)
  }
}

/** The same for an idempotent action: retries unknown outcomes, and upserts of one document at the same time, of which one fails. */
export async function patiently<T>(action: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await guard(action)
    } catch (error) {
      const isTemporary = error instanceof Unavailable && (isOutcomeUnknown(error.cause) || isDuplicate(error.cause))
      if (attempt === ATTEMPTS || !isTemporary) throw error
      await setTimeout(PAUSE_MS * 5 ** (attempt - 1))
    }
  }
}
