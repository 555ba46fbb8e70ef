/** Messages between the thread that serves and a thread of the database. */
import { Unavailable } from '../../../domain/errors.ts'

export type ThreadData = { file: string; kind: 'writer' | 'reader' }
export type Call = { id: number; verb: string; args: unknown[] }
/** Classes do not cross threads. */
export type Failure = { unavailable: boolean; error: unknown }
export type Reply = { id: number; value?: unknown; failure?: Failure }
export type ToThread = 'open' | 'close' | Call[]
/** `verbs` are the names that may be called from now on. */
export type FromThread = { verbs: string[] } | { notOpened: Failure } | { replies: Reply[] }

/** An error as plain data for a message between threads; `Unavailable` is marked, so that it stays one. */
export function failureOf(error: unknown): Failure {
  return error instanceof Unavailable ? { unavailable: true, error: error.cause } : { unavailable: false, error }
}

/** The error of a message. */
export function errorOf({ unavailable, error }: Failure): unknown {
  return unavailable ? new Unavailable('store', error) : error
}
