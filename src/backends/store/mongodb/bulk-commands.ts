/**
 * Batched reads and writes of single documents, many in one command. Each write has its own outcome, or is `Unavailable` when that is unknown.
 * Every process sorts the documents of a command the same way: on a server that runs a command in one transaction, two commands could deadlock otherwise.
 */
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import { MongoBulkWriteError, type AnyBulkWriteOperation, type Collection, type Document, type Filter } from 'mongodb'
import { Unavailable } from '../../../domain/errors.ts'
import { DEADLOCK, DUPLICATE } from '../../mongodb/driver-errors.ts'
import { createBatcher, type BatchOutcome } from '../../../concurrency/batching.ts'

/** `write` is a new value after each write of the document. It distinguishes our write from another process's. */
export type Written = { _id: string; write?: string }

/** Replaces the document of its id by `next`, whose `write` is new, if the document matches `when`. */
export type Replacement<D extends Written> = { next: D & { write: string }; when: Document }

const MAX_READS = 64
const MAX_WRITES = 32
/** Attempts of a deadlock victim. The server detects a deadlock after a second; an immediate retry would collide with the winner. */
const MAX_TRIES = 4
const DEADLOCK_PAUSE_MS = 100
/** A swap may be followed by a read of its outcome, which gets as long again. */
const SWAP_MS = 30_000

/** Reads by a unique member; null where no document has the value. Concurrent readers of one value share the document and must not change it. */
export function batchReads<D extends Document>(collection: Collection<D>, member: string): (value: string) => Promise<D | null> {
  return createBatcher<string, D | null>({
    backend: 'store',
    async send(values) {
      const all = (await collection.find({ [member]: { $in: [...new Set(values)] } } as Filter<D>).toArray()) as D[]
      const found = new Map(all.map((document) => [document[member] as string, document]))
      return values.map((value) => ({ answer: found.get(value) ?? null }))
    },
    idOf: (value) => value,
    shares: true,
    most: MAX_READS,
  })
}

/**
 * Inserts documents, each unless another has its `_id` or another unique value. `nameOf` returns the value by which concurrent inserts may
 * conflict: a command holds each name once, because two commands with several documents of one name would deadlock repeatedly. `most`: documents in one command.
 */
export function batchInserts<D extends Written>(
  collection: Collection<D>,
  nameOf: (document: D) => string,
  weigh: (document: D) => number,
  most = MAX_WRITES,
): (document: D) => Promise<'added' | 'taken'> {
  return createBatcher<D, 'added' | 'taken'>({
    backend: 'store',
    async send(documents) {
      const sorted = sortedBy(documents, nameOf)
      const { failed } = await writeAll(
        collection,
        sorted.map((document) => ({ insertOne: { document } }) as AnyBulkWriteOperation<D>),
      )
      const outcomes = new Map(sorted.map((document, n) => [document, outcomeOf(failed.get(n))]))
      return documents.map((document) => outcomes.get(document) ?? unknown(null))
    },
    idOf: nameOf,
    shares: false,
    most,
    weigh,
  })
}

function outcomeOf(failure: Failed | undefined): BatchOutcome<'added' | 'taken'> {
  if (!failure) return { answer: 'added' }
  return failure.code === DUPLICATE ? { answer: 'taken' } : unknown(failure)
}

/** Compare-and-set of whole documents. `lost`: the document did not match or was not there; nothing was written. */
export function batchReplacements<D extends Written>(
  collection: Collection<D>,
  weigh: (document: D) => number,
): (swap: Replacement<D>) => Promise<'swapped' | 'lost'> {
  return createBatcher<Replacement<D>, 'swapped' | 'lost'>({
    backend: 'store',
    async send(swaps) {
      const sorted = sortedBy(swaps, ({ next }) => next._id)
      const written = await writeAll(
        collection,
        sorted.map(({ next, when }) => ({ replaceOne: { filter: { _id: next._id, ...when } as Filter<D>, replacement: next } })),
      )
      const failed = new Map([...written.failed].map(([n, failure]) => [sorted[n], failure]))
      const answered = swaps.filter((swap) => !failed.has(swap))
      const swapped = await swappedOf(collection, answered, written.matched)
      return swaps.map((swap) => (failed.has(swap) ? unknown(failed.get(swap)) : swapped(swap)))
    },
    idOf: ({ next }) => next._id,
    shares: false,
    most: MAX_WRITES,
    weigh: ({ next }) => weigh(next),
    longestMs: SWAP_MS,
  })
}

/** An update of the document `id` if it also matches `filter`. */
export type Update = { id: string; filter: Document; update: { $set: Document; $unset?: Document; $push?: Document } }

/** Updates of single documents. `lost`: the document did not match, was not there, or would have a unique value of another one; nothing was written. */
export function batchUpdates<D extends Written>(collection: Collection<D>): (update: Update) => Promise<'swapped' | 'lost'> {
  return createBatcher<Update, 'swapped' | 'lost'>({
    backend: 'store',
    async send(updates) {
      const marked = updates.map((asked) => ({ ...asked, next: { _id: asked.id, write: randomUUID() } }))
      const sorted = sortedBy(marked, ({ id }) => id)
      const operations = sorted.map(({ id, filter, update, next: { write } }) => ({
        updateOne: { filter: { ...filter, _id: id }, update: { ...update, $set: { ...update.$set, write } } },
      }))
      const written = await writeAll(collection, operations as unknown as AnyBulkWriteOperation<D>[])
      const failed = new Map([...written.failed].map(([n, failure]) => [sorted[n], failure]))
      const swapped = await swappedOf(
        collection,
        sorted.filter((one) => !failed.has(one)),
        written.matched,
      )
      return marked.map((one) => {
        const failure = failed.get(one)
        return failure ? (failure.code === DUPLICATE ? { answer: 'lost' } : unknown(failure)) : swapped(one)
      })
    },
    idOf: ({ id }) => id,
    shares: false,
    most: MAX_WRITES,
    longestMs: SWAP_MS,
  })
}

/**
 * Which swaps of one command took effect: the server returns only their number. Unless that is all or none, the documents are read. A swap
 * whose `write` is there took effect, and if their number matches, the others lost. Otherwise one was overwritten since and cannot be
 * distinguished from a lost one.
 */
async function swappedOf<D extends Written>(
  collection: Collection<D>,
  swaps: Swap[],
  count: number,
): Promise<(swap: Swap) => BatchOutcome<'swapped' | 'lost'>> {
  if (count === swaps.length) return () => ({ answer: 'swapped' })
  if (count === 0) return () => ({ answer: 'lost' })
  const ids = { _id: { $in: swaps.map(({ next }) => next._id) } } as Filter<D>
  const found = await collection.find<Written>(ids, { projection: { write: 1 } }).toArray()
  const writes = new Set(found.map(({ write }) => write))
  const isThere = ({ next }: Swap) => writes.has(next.write)
  const others: BatchOutcome<'lost'> =
    swaps.filter(isThere).length === count ? { answer: 'lost' } : unknown('overwritten by another process')
  return (swap) => (isThere(swap) ? { answer: 'swapped' } : others)
}

type Swap = { next: Written }
type Failed = { code?: number | string | undefined; errmsg?: string | undefined }
type Outcome = { matched: number; failed: Map<number, Failed> }

/**
 * Sends all operations in one unordered command, and retries the deadlock victims: one of the transactions in a deadlock always succeeds.
 * `failed`, by index: the operations that the server reports as failed. Throws when the outcome is unknown.
 */
async function writeAll<D extends Document>(
  collection: Collection<D>,
  operations: AnyBulkWriteOperation<D>[],
  tries = MAX_TRIES,
): Promise<Outcome> {
  const { matched, failed } = await writeOnce(collection, operations)
  const victims = [...failed].flatMap(([index, { code }]) => (code === DEADLOCK ? [index] : []))
  if (victims.length === 0 || tries === 1) return { matched, failed }
  await pause(DEADLOCK_PAUSE_MS)
  const again = await writeAll(
    collection,
    victims.map((index) => operations[index]!),
    tries - 1,
  )
  const others = [...failed].filter(([index]) => !victims.includes(index))
  return {
    matched: matched + again.matched,
    failed: new Map([...others, ...[...again.failed].map(([n, failure]) => [victims[n]!, failure] as const)]),
  }
}

async function writeOnce<D extends Document>(collection: Collection<D>, operations: AnyBulkWriteOperation<D>[]): Promise<Outcome> {
  try {
    const { matchedCount } = await collection.bulkWrite(operations, { ordered: false })
    return { matched: matchedCount, failed: new Map() }
  } catch (error) {
    // The driver throws the same error when no answer came. A write without a majority may be rolled back.
    const isAnswer = error instanceof MongoBulkWriteError && error.result.hasWriteErrors() && !error.result.getWriteConcernError()
    if (!isAnswer) throw error
    return { matched: error.matchedCount, failed: new Map(error.result.getWriteErrors().map((failure) => [failure.index, failure])) }
  }
}

function unknown(cause: unknown): { failure: Unavailable } {
  return { failure: new Unavailable('store', cause) }
}

function sortedBy<One>(all: One[], order: (one: One) => string): One[] {
  const keyed = all.map((one) => ({ one, key: order(one) }))
  return keyed.sort((a, b) => (a.key < b.key ? -1 : 1)).map(({ one }) => one)
}
