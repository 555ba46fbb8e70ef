/**
 * Batched reads and writes of single documents, many in one command. Each write has its own outcome, or is `Unavailable` when that is unknown.
 * Every process sorts the documents of a command the same way: on a server that runs a command in one transaction, two commands could deadlock otherwise.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { MongoBulkWriteError, type AnyBulkWriteOperation, type Collection, type Document, type Filter } from 'mongodb'
import { Unavailable } from '../../../domain/errors.ts'
import { DEADLOCK, DUPLICATE } from '../../mongodb/driver-errors.ts'
import { createBatcher, type BatchOutcome } from '../../../concurrency/batching.ts'

/** `write` is a new value after each write of the document. It distinguishes our write from another process's. */
export type Written = { _id: string; write?: string }

/** Replaces the document of its id by `next`, whose `write` is new, if the document matches `when`: the `write` that it was read with, where that is known. */
export type Replacement<D extends Written> = { next: D & { write: string }; when: { write: string | null } | { version: number } }

const MAX_READS = 64
const MAX_WRITES = 32
/** Approximate bytes of a change. */
const CHANGE_BYTES = 500
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
  return batchSwaps(collection, {
    statementsOf(swaps) {
      const byWrite = swaps.filter(({ when }) => 'write' in when)
      const others = swaps.filter(({ when }) => !('write' in when)).map((swap) => [swap])
      return byWrite.length > 0 ? [byWrite, ...others] : others
    },
    operationOf(swaps) {
      const [{ next, when }] = swaps as [Replacement<D>]
      if (swaps.length === 1) return { replaceOne: { filter: { _id: next._id, ...when } as Filter<D>, replacement: next } }
      const lasts = swaps.map((swap) => ('write' in swap.when ? swap.when.write : null))
      return together(swaps, lasts, {}, (of) => [{ $replaceWith: of(swaps.map((swap) => swap.next)) }])
    },
    weigh: ({ next }) => weigh(next),
    duplicate: (failure) => unknown(failure),
  })
}

/** Sets the members of `next` in the document of its id if its `write` is still `last` and it matches `when`. The `write` in `next` is new. */
export type Change = { next: Document & { _id: string; write: string }; last: string | null; when: Document; appended?: unknown }

/**
 * Changes of single documents. `lost`: the document did not match, was not there, or would have a unique value of another one; nothing was written. With `ending`, each
 * also appends its value to a member, and removes others.
 */
export function batchChanges<D extends Written>(
  collection: Collection<D>,
  ending?: { appends: string; unset: readonly string[] },
): (change: Change) => Promise<'swapped' | 'lost'> {
  return batchSwaps<D, Change>(collection, {
    statementsOf: (changes) => [...Map.groupBy(changes, ({ when }) => JSON.stringify(when)).values()],
    operationOf(changes) {
      const lasts = changes.map(({ last }) => last)
      return together(changes, lasts, changes[0]?.when ?? {}, (of) => [
        { $replaceWith: { $mergeObjects: ['$$ROOT', of(changes.map(({ next }) => next))] } },
        ...(ending
          ? [
              { $set: { [ending.appends]: { $concatArrays: [`$${ending.appends}`, of(changes.map(({ appended }) => [appended]))] } } },
              { $unset: [...ending.unset] },
            ]
          : []),
      ])
    },
    weigh: () => CHANGE_BYTES,
    duplicate: () => ({ answer: 'lost' }),
  })
}

/**
 * One statement for many documents: it takes PostgreSQL, which runs each by itself, a quarter of the time. No two documents ever have one `write`, so that those that match are
 * the ones that were read with it. `pipeline` gets a function that chooses a document's own of many values. The driver repeats a statement of one document after a failover.
 */
function together<D extends Written>(
  swaps: Swap[],
  lasts: (string | null)[],
  when: Document,
  pipeline: (of: (values: unknown[]) => Document) => Document[],
): AnyBulkWriteOperation<D> {
  const ids = swaps.map(({ next }) => next._id)
  const filter = { ...when, _id: { $in: ids }, write: { $in: lasts } } as unknown as Filter<D>
  const of = (values: unknown[]) => ({ $arrayElemAt: [{ $literal: values }, { $indexOfArray: [{ $literal: ids }, '$_id'] }] })
  const statement = { filter, update: pipeline(of) }
  return swaps.length === 1 ? { updateOne: statement } : { updateMany: statement }
}

type SwapKind<D extends Written, S extends Swap> = {
  /** The swaps of each statement. */
  statementsOf(swaps: S[]): S[][]
  operationOf(swaps: S[]): AnyBulkWriteOperation<D>
  weigh(swap: S): number
  /** The outcome of a swap by which two documents would have one unique value. */
  duplicate(failure: Failed): BatchOutcome<'swapped' | 'lost'>
}

function batchSwaps<D extends Written, S extends Swap>(
  collection: Collection<D>,
  { statementsOf, operationOf, weigh, duplicate }: SwapKind<D, S>,
): (swap: S) => Promise<'swapped' | 'lost'> {
  async function write(statements: S[][]): Promise<{ matched: number; failed: Map<S, Failed>; repeated: boolean }> {
    const written = await writeAll(collection, statements.map(operationOf))
    const failed = new Map(
      statements.flatMap((swaps, n) => (written.failed.has(n) ? swaps.map((swap) => [swap, written.failed.get(n)!] as const) : [])),
    )
    // One that takes a unique value of another document fails its whole statement.
    const again = statements.filter((swaps, n) => swaps.length > 1 && written.failed.get(n)?.code === DUPLICATE).flat()
    if (again.length === 0) return { matched: written.matched, failed, repeated: false }
    const alone = await write(again.map((swap) => [swap]))
    const others = [...failed].filter(([swap]) => !again.includes(swap))
    return { matched: written.matched + alone.matched, failed: new Map([...others, ...alone.failed]), repeated: true }
  }

  return createBatcher<S, 'swapped' | 'lost'>({
    backend: 'store',
    async send(swaps) {
      const { matched, failed, repeated } = await write(statementsOf(sortedBy(swaps, ({ next }) => next._id)))
      const swapped = await swappedOf(
        collection,
        swaps.filter((swap) => !failed.has(swap)),
        matched,
        repeated,
      )
      return swaps.map((swap) => {
        const failure = failed.get(swap)
        if (!failure) return swapped(swap)
        return failure.code === DUPLICATE ? duplicate(failure) : unknown(failure)
      })
    },
    idOf: ({ next }) => next._id,
    shares: false,
    most: MAX_WRITES,
    weigh,
    longestMs: SWAP_MS,
  })
}

/**
 * Which swaps of one command took effect: the server returns only their number. Unless that is all or none, the documents are read. A swap
 * whose `write` is there took effect, and if their number matches, the others lost. Otherwise one was overwritten since and cannot be
 * distinguished from a lost one. `repeated`: swaps of a failed statement were sent again. A mongod keeps those that took effect before the
 * failure without counting them, and they do not match a second time.
 */
async function swappedOf<D extends Written>(
  collection: Collection<D>,
  swaps: Swap[],
  count: number,
  repeated: boolean,
): Promise<(swap: Swap) => BatchOutcome<'swapped' | 'lost'>> {
  if (count === swaps.length) return () => ({ answer: 'swapped' })
  if (count === 0 && !repeated) return () => ({ answer: 'lost' })
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
