/**
 * MongoDB driver errors as errors of the backend. At the start that is `Unavailable` if a retry may help, and otherwise a sentence for the operator; later it
 * is always `Unavailable`.
 */
import {
  BSON,
  MongoAPIError,
  MongoBulkWriteError,
  MongoError,
  MongoNetworkError,
  MongoParseError,
  MongoServerError,
  MongoServerSelectionError,
} from 'mongodb'
import { Unavailable } from '../../domain/errors.ts'

// https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml
const UNAUTHORIZED = 13
const AUTHENTICATION_FAILED = 18
const INDEX_OPTIONS_CONFLICT = 85
const INDEX_KEY_SPECS_CONFLICT = 86
export const DUPLICATE = 11000
/** FerretDB's code for PostgreSQL's 40P01, deadlock_detected: this command was the victim. */
export const DEADLOCK = 16_908_292
/** MongoDB Atlas reports failed authentication by this code. */
const ATLAS_ERROR = 8000

/** The error of an invalid address. The driver's message may repeat parts of the address, so it is only the cause. */
export function invalidUrl(error: unknown): Error {
  return new Error(
    'STORE_URL is not a valid MongoDB address: it must be mongodb://<user>:<password>@<host>:<port>,…/<database>?<options>, with special characters in names and passwords percent-encoded.',
    { cause: error },
  )
}

/** The failure to open a backend, for the operator. `place` names the server and the database without credentials. */
export function openingFailure(backend: 'store' | 'files', error: unknown, place: string): unknown {
  const sentence = error instanceof MongoServerError ? serverProblem(error) : clientProblem(error)
  if (sentence !== null)
    return new Error(`The ${backend === 'store' ? 'store' : 'MongoDB of the files'} ${place} ${sentence}`, { cause: error })
  return toBackendError(backend, error)
}

function serverProblem({ code, message }: MongoServerError): string | null {
  // Some compatible servers have no code for it.
  switch (message.startsWith('permission denied') ? UNAUTHORIZED : code) {
    case AUTHENTICATION_FAILED:
    case ATLAS_ERROR:
      return 'refuses the credentials: check the user, the password and authSource in STORE_URL.'
    case UNAUTHORIZED:
      return 'denies read or write access: give the user of STORE_URL the role readWrite on that database, or name one that has it.'
    case INDEX_OPTIONS_CONFLICT:
    case INDEX_KEY_SPECS_CONFLICT:
      return 'has an index that conflicts with one of Tollgate by its name or its keys: drop it, or give Tollgate a database of its own.'
    case DUPLICATE:
      return 'has documents that violate a unique index of Tollgate: give Tollgate a database of its own, or restore a backup.'
    default:
      return null
  }
}

/** Problems of the configuration: files and options. */
function clientProblem(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code
  if (code === 'ENOENT' || code === 'EACCES') return 'cannot be reached: a file that STORE_URL names for TLS cannot be read.'
  const isOption = error instanceof MongoParseError || (error instanceof MongoAPIError && !/Closed|NotConnected/.test(error.name))
  return isOption ? 'cannot be reached with the options of STORE_URL: check them.' : null
}

/** The error that the backend throws: `Unavailable` for errors of the driver or the system; programming errors pass unchanged. */
export function toBackendError(backend: 'store' | 'files', error: unknown): unknown {
  const isForeign = error instanceof MongoError || error instanceof BSON.BSONError || isSystem(error)
  return isForeign ? new Unavailable(backend, error) : error
}

/** An error of DNS or a socket. The driver does not wrap all of them: a write to a connection that the server just closed is a bare EPIPE. */
function isSystem(error: unknown): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string'
}

/** Whether a write violated a unique index; of several documents, whether each error is that. Only the code is the same on all servers. */
export function isDuplicate(error: unknown): boolean {
  if (error instanceof MongoBulkWriteError) {
    const errors = Array.isArray(error.writeErrors) ? error.writeErrors : [error.writeErrors]
    return errors.length > 0 && errors.every(({ code }) => code === DUPLICATE)
  }
  return error instanceof MongoServerError && error.code === DUPLICATE
}

/** Whether the outcome is unknown: no answer, or a lost connection. A second attempt may succeed. */
export function isOutcomeUnknown(thrown: unknown): boolean {
  // For several documents, the driver wraps their errors in one.
  const error = thrown instanceof MongoBulkWriteError && thrown.errorResponse instanceof Error ? thrown.errorResponse : thrown
  if (error instanceof MongoNetworkError || error instanceof MongoServerSelectionError) return true
  return error instanceof MongoError && error.hasErrorLabel('RetryableWriteError')
}
