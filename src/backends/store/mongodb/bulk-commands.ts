/**
 * Batched reads and writes of single documents, many in one command. Each write has its own outcome, or is `Unavailable` when that is unknown.
 * Every process sorts the documents of a command the same way: on a server that runs a command in one transaction, two commands could deadlock otherwise.
 */
import { setTimeout as pause } from 'node:timers/promises'
import {
  MongoBulkWriteError,
  type AnyBulkWriteOperation,
  type Collection,
  type Document,
  type Filter,
  type UpdateFilter,
  type WithoutId,
} from 'mongodb'
import { Unavailable } from '../../../domain/errors.ts'
import { DEADLOCK, DUPLICATE } from '../../mongodb/driver-errors.ts'
import { createBatcher, type BatchOutcome } from '../../../concurrency/batching.ts'

/** `write` is a new value after each write of the document. It distinguishes our write from another process's. */
export type Written = { _id: string; write?: string }

const MAX_READS = 64
const MAX_WRITES = 64
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

/**
 * A compare-and-set of one document: of the `write` that it was read with, null if it had none, or only of `when` where `last` is not
 * known. `next`, whose `write` is new, has the members to set, or with `isWhole` the document.
 */
export type Change = {
  next: Document & { _id: string; write: string }
  last: string | null | undefined
  when: Document
  isWhole?: boolean
  /** Members to set in embedded documents, by the path of each: inner ones first. */
  within?: Record<string, Document>
  /** Members to remove first, by path. Any document of the same statement loses them: they are of all, or their names are of one. */
  removed?: string[]
  /** A value to append to each of these lists. */
  appended?: Record<string, unknown>
}

/**
 * Changes of single documents. `lost`: the document did not match, was not there, or would have a unique value of another one; nothing was
 * written. `pauses` as in `BatchOptions`.
 */
export function batchChanges<D extends Written>(
  collection: Collection<D>,
  weigh: (change: Change) => number = () => CHANGE_BYTES,
  pauses = true,
): (change: Change) => Promise<'swapped' | 'lost'> {
  async function write(statements: Change[][]): Promise<{ matched: number; failed: Map<Change, Failed>; repeated: boolean }> {
    const written = await writeAll(collection, statements.map(operationOf<D>))
    const failed = new Map(
      statements.flatMap((changes, n) => (written.failed.has(n) ? changes.map((change) => [change, written.failed.get(n)!] as const) : [])),
    )
    // One that takes a unique value of another document fails its whole statement.
    const again = statements.filter((changes, n) => changes.length > 1 && written.failed.get(n)?.code === DUPLICATE).flat()
    if (again.length === 0) return { matched: written.matched, failed, repeated: false }
    const alone = await write(again.map((change) => [change]))
    const others = [...failed].filter(([change]) => !again.includes(change))
    return { matched: written.matched + alone.matched, failed: new Map([...others, ...alone.failed]), repeated: true }
  }

  return createBatcher<Change, 'swapped' | 'lost'>({
    backend: 'store',
    async send(changes) {
      const { matched, failed, repeated } = await write(statementsOf(sortedBy(changes, placeOf)))
      const swapped = await swappedOf(
        collection,
        changes.filter((change) => !failed.has(change)),
        matched,
        repeated,
      )
      return changes.map((change) => {
        const failure = failed.get(change)
        if (!failure) return swapped(change)
        return failure.code === DUPLICATE ? { answer: 'lost' } : unknown(failure)
      })
    },
    idOf: ({ next }) => next._id,
    shares: false,
    most: MAX_WRITES,
    weigh,
    pauses,
    longestMs: SWAP_MS,
  })
}

/** Whole documents come first in every process, as they are statements of their own. */
function placeOf({ next, isWhole }: Change): string {
  return `${isWhole ? 0 : 1}${next._id}`
}

/** The changes of each statement: one statement has changes of one kind, or one whose last write is not known. */
function statementsOf(changes: Change[]): Change[][] {
  const kindOf = ({ next, last, when, isWhole, within, appended }: Change) =>
    JSON.stringify(last === undefined ? next._id : [when, isWhole, Object.keys(within ?? {}), Object.keys(appended ?? {})])
  return [...Map.groupBy(changes, kindOf).values()]
}

/**
 * One statement for many documents: it takes PostgreSQL, which runs each by itself, a quarter of the time. No two documents ever have one
 * `write`, so that those that match are the ones that were read with it. The driver repeats a statement of one document after a failover.
 */
function operationOf<D extends Written>(changes: Change[]): AnyBulkWriteOperation<D> {
  const [first] = changes as [Change]
  const { next, last, when, isWhole = false, within = {}, appended = {} } = first
  if (changes.length === 1) {
    const filter = { ...when, _id: next._id, ...(last === undefined ? {} : { write: last }) } as unknown as Filter<D>
    if (isWhole) return { replaceOne: { filter, replacement: next as unknown as WithoutId<D> } }
    return { updateOne: { filter, update: updateOf(first) as UpdateFilter<D> } }
  }
  const ids = changes.map((change) => change.next._id)
  const lasts = changes.map((change) => change.last)
  const filter = { ...when, _id: { $in: ids }, write: { $in: lasts } } as unknown as Filter<D>
  /** Chooses a document's own of many values. */
  const of = (value: (change: Change) => unknown) => ({
    $arrayElemAt: [{ $literal: changes.map(value) }, { $indexOfArray: [{ $literal: ids }, '$_id'] }],
  })
  const nexts = of((change) => change.next)
  const removed = [...new Set(changes.flatMap((change) => change.removed ?? []))]
  const update = isWhole
    ? [{ $replaceWith: nexts }]
    : [
        ...(removed.length > 0 ? [{ $unset: removed }] : []),
        ...Object.keys(within).map((path) => ({
          $set: { [path]: { $mergeObjects: [`$${path}`, of((change) => change.within?.[path])] } },
        })),
        { $replaceWith: { $mergeObjects: ['$$ROOT', nexts] } },
        ...Object.keys(appended).map((list) => ({
          $set: { [list]: { $concatArrays: [`$${list}`, of((change) => [change.appended?.[list]])] } },
        })),
      ]
  return { updateMany: { filter, update } }
}

/** The same for one document: a large one costs PostgreSQL less than by a pipeline. */
function updateOf({ next: { _id, ...next }, within = {}, removed = [], appended = {} }: Change): Document {
  const inner = Object.entries(within).flatMap(([path, members]) =>
    Object.entries(members).map(([name, value]) => [`${path}.${name}`, value]),
  )
  const $unset = removed.filter((path) => !(path in next)).map((path) => [path, ''])
  return {
    $set: { ...next, ...Object.fromEntries(inner) },
    ...($unset.length > 0 && { $unset: Object.fromEntries($unset) }),
    ...(Object.keys(appended).length > 0 && { $push: appended }),
  }
}

/**
 * Which changes of one command took effect: the server returns only their number. Unless that is all or none, the documents are read. A change
 * whose `write` is there took effect, and if their number matches, the others lost. Otherwise one was overwritten since and cannot be
 * distinguished from a lost one. `repeated`: changes of a failed statement were sent again. A mongod keeps those that took effect before the
 * failure without counting them, and they do not match a second time.
 */
async function swappedOf<D extends Written>(
  collection: Collection<D>,
  changes: Change[],
  count: number,
  repeated: boolean,
): Promise<(change: Change) => BatchOutcome<'swapped' | 'lost'>> {
  if (count === changes.length) return () => ({ answer: 'swapped' })
  if (count === 0 && !repeated) return () => ({ answer: 'lost' })
  const ids = { _id: { $in: changes.map(({ next }) => next._id) } } as Filter<D>
  const found = await collection.find<Written>(ids, { projection: { write: 1 } }).toArray()
  const writes = new Set(found.map(({ write }) => write))
  const isThere = ({ next }: Change) => writes.has(next.write)
  const others: BatchOutcome<'lost'> =
    changes.filter(isThere).length === count ? { answer: 'lost' } : unknown('overwritten by another process')
  return (change) => (isThere(change) ? { answer: 'swapped' } : others)
}

type Failed = { code?: number | string | undefined; errmsg?: string | undefined }
type Outcome = { matched: number; failed: Map<number, Failed> }

/**
 * Sends all operations in one unordered command, and retries the deadlock victims: one of the transactions in a deadlock always succeeds.
 * `failed`, by index: the operations that the server reports as failed. Throws when the outcome is unknown.
 */
export async function writeAll<D extends Document>(
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

/** A sorted copy. Commands that sort what they write the same way in all processes cannot deadlock. */
export function sortedBy<One, Key extends string | number>(all: One[], order: (one: One) => Key): One[] {
  const keyed = all.map((one) => ({ one, key: order(one) }))
  return keyed.sort((a, b) => (a.key < b.key ? -1 : 1)).map(({ one }) => one)
}
