/**
 * One MongoDB database: verbs with a timeout, closing. No driver error leaves the backend. There are no transactions: each document is
 * written on its own, though a command may contain many.
 */
import type { Collection, Document, MongoClient } from 'mongodb'
import { Busy, Unavailable } from '../../../domain/errors.ts'
import { withTimeout } from '../../../concurrency/batching.ts'
import { isDuplicate, toBackendError } from '../../mongodb/driver-errors.ts'

/** An entity as a document: `_id` is its `id`. */
export type Stored<Entity extends { id: string }> = Omit<Entity, 'id'> & { _id: string }

export type Database = {
  collection<D extends Document>(name: string): Collection<D>
  /** Runs one verb. Failures of the server become `Unavailable`; programming errors pass unchanged. */
  run<T>(work: () => Promise<T>): Promise<T>
  /** The same verbs, each of which is run by `run`. */
  running<Verbs extends object>(verbs: Verbs): Verbs
  /** The server's time, epoch milliseconds. */
  clock(): Promise<number>
  /** Waits for the verbs in progress, then disconnects. Later verbs are `Unavailable`. Idempotent. */
  close(): Promise<void>
}

/** Timeout of a whole verb, in case a step exceeds its own. */
export const VERB_TIMEOUT_MS = 60_000
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
      throw toBackendError('store', error)
    } finally {
      inProgress.delete(answer)
    }
  }

  function running<Verbs extends object>(verbs: Verbs): Verbs {
    const each = Object.entries(verbs) as [string, (...args: unknown[]) => Promise<unknown>][]
    return Object.fromEntries(each.map(([verb, work]) => [verb, (...args: unknown[]) => run(() => work(...args))])) as Verbs
  }

  async function close(): Promise<void> {
    await Promise.allSettled(inProgress)
    await client.close().catch(() => {}) // The server may be down.
  }

  async function clock(): Promise<number> {
    const { localTime } = await run(() => db.admin().command({ hello: 1 }))
    return Number(localTime)
  }

  return { collection: (name) => db.collection(name), run, running, clock, close: () => (closed ??= close()) }
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

/** The document of an entity. */
export function toStored<Entity extends { id: string }>({ id, ...facts }: Entity): Stored<Entity> {
  return { _id: id, ...facts }
}

/** The format of the documents that this program writes. Those without `format` have the first (docs/store.md, "Schema"). */
const FORMAT = 1

/** Filter of the lists that a pass works through: what a newer program wrote is left to it, and takes no place in a page. */
export const KNOWN = { format: { $not: { $gt: FORMAT } } }

/** Whether this program knows the format of a document. */
export function isKnown({ format = FORMAT }: { format?: number }): boolean {
  return format <= FORMAT
}

/** A document as it was read. Throws `Busy` if a newer program wrote it in a format that this one does not know: others go on. */
export function known<D extends { _id: unknown; format?: number }>(document: D): D {
  const { _id, format } = document
  if (isKnown(document)) return document
  const sentence = `${String(_id)} has format ${format} and this Tollgate supports none newer than ${FORMAT}: replace this process by the newer Tollgate`
  throw new Busy('store', new Error(sentence))
}

/** The entity of a document that was read without members that only indexes use. Throws as `known` does. */
export function fromStored<Entity extends { id: string }>(document: { _id: string }): Entity {
  const { _id, ...facts } = known(document)
  return { id: _id, ...facts } as unknown as Entity
}
