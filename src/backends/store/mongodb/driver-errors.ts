/**
 * What passes the backend when the driver or the server fails. At the start that is `Unavailable` while trying again may help, or else a
 * sentence for the operator; later always the first.
 */
import { BSON, MongoAPIError, MongoError, MongoParseError, MongoServerError } from 'mongodb'
import { Unavailable } from '../../../domain/errors.ts'

// https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml
const UNAUTHORIZED = 13
const AUTHENTICATION_FAILED = 18
const INDEX_OPTIONS_CONFLICT = 85
const INDEX_KEY_SPECS_CONFLICT = 86
export const DUPLICATE = 11000
/** FerretDB's number for PostgreSQL's 40P01: two wrote what only one of them may have, each waited for the other, and this one was chosen to give way. */
export const DEADLOCK = 16_908_292
/** Of MongoDB Atlas. */
const ATLAS_ERROR = 8000

/** What cannot be read of the address. The driver's words may repeat a part of it, so they only go to whoever reads the cause. */
export function malformed(error: unknown): Error {
  return new Error('STORE_URL is no address of a MongoDB: it may be mongodb://<user>:<password>@<host>:<port>,…/<database>?<options>, with what is special in a name or a password percent-encoded.', { cause: error })
}

/** `place` names the store without its credentials. */
export function openingFailure(error: unknown, place: string): unknown {
  const sentence = error instanceof MongoServerError ? refusal(error) : fault(error)
  if (sentence !== null) return new Error(`The store ${place} ${sentence}`, { cause: error })
  return outward(error)
}

function refusal({ code, message }: MongoServerError): string | null {
  // Some servers that speak the protocol have no code for it.
  switch (message.startsWith('permission denied') ? UNAUTHORIZED : code) {
    case AUTHENTICATION_FAILED:
    case ATLAS_ERROR:
      return 'refuses us: check the user, the password and authSource in STORE_URL.'
    case UNAUTHORIZED:
      return 'does not let us read and write: give the user of STORE_URL the role readWrite on that database, or name one that has it.'
    case INDEX_OPTIONS_CONFLICT:
    case INDEX_KEY_SPECS_CONFLICT:
      return 'has an index that differs from ours under its name or its keys: drop it, or give Tollgate a database of its own.'
    case DUPLICATE:
      return 'has documents that a unique index of ours does not allow: give Tollgate a database of its own, or bring back a backup.'
    default:
      return null
  }
}

/** What is wrong with our own side. */
function fault(error: unknown): string | null {
  const code = (error as { code?: unknown } | null)?.code
  if (code === 'ENOENT' || code === 'EACCES') return 'cannot be reached: a file that STORE_URL names for TLS cannot be read.'
  const isOption = error instanceof MongoParseError || (error instanceof MongoAPIError && !/Closed|NotConnected/.test(error.name))
  return isOption ? 'cannot be reached by what STORE_URL asks for: check its options.' : null
}

/** What the backend throws for an error in here: `Unavailable` if it is the driver's or the system's; a mistake in our own work stays what it is. */
export function outward(error: unknown): unknown {
  const isForeign = error instanceof MongoError || error instanceof BSON.BSONError || isSystem(error)
  return isForeign ? new Unavailable('store', error) : error
}

/** Of a name server or a socket. The driver does not wrap all of them: a write on a connection that the server just ended is a bare EPIPE. */
function isSystem(error: unknown): boolean {
  return error instanceof Error && 'code' in error && typeof error.code === 'string'
}
