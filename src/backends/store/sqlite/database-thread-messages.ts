/** Messages between the thread that serves and a thread of the database. */
import { Unavailable, Unwritable } from '../../../domain/errors.ts'

export type ThreadData = { file: string; kind: 'writer' | 'reader' }
export type Call = { id: number; verb: string; args: unknown[] }
/** Classes do not cross threads. */
export type Failure = { unavailable: boolean; unwritable?: boolean; error: unknown }
export type Reply = { id: number; value?: unknown; failure?: Failure }
export type ToThread = 'open' | 'close' | Call[]
/** `verbs` are the names that may be called from now on. */
export type FromThread = { verbs: string[] } | { notOpened: Failure } | { replies: Reply[] }

/** An error as plain data for a message between threads; `Unavailable` and `Unwritable` are marked, so that they stay such. */
export function failureOf(error: unknown): Failure {
  if (!(error instanceof Unavailable)) return { unavailable: false, error }
  return { unavailable: true, unwritable: error instanceof Unwritable, error: error.cause }
}

/** The error of a message. */
export function errorOf({ unavailable, unwritable, error }: Failure): unknown {
  if (unwritable) return new Unwritable('store', error)
  return unavailable ? new Unavailable('store', error) : error
}
