/**
 * Reads and writes of single documents, many in one command. Each write has an outcome of its own, which is known or `Unavailable`: never guessed.
 * A command names its documents in one order, whoever sends it. A server that does all of a command in one transaction would else let two of them wait for each other.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { MongoBulkWriteError, type AnyBulkWriteOperation, type Collection, type Document, type Filter } from 'mongodb'
import { Unavailable } from '../../../domain/errors.ts'
import { DEADLOCK, DUPLICATE } from './driver-errors.ts'
import { createBatcher, type BatchOutcome } from '../../../concurrency/batching.ts'

/** `write` is another after each write of the document: what tells ours from one of others. */
export type Written = { _id: string; write?: string }

/** Puts `next`, whose `write` is new, in the place of the document of its id if that is as `when` says. */
export type Replacement<D extends Written> = { next: D & { write: string }; when: Document }

const MOST_READ = 64
const MOST_WRITTEN = 32
/** Of a write that gave way; a deadlock is found after a second. Who comes back at once is in the way of the one who was let through. */
const MOST_TRIES = 4
const GIVE_WAY_MS = 100
/** Swaps may be followed by a look at what became of them, which is given as long again. */
const SWAP_MS = 30_000

/** Reads by a member that is unique among the documents; answers null where none has the value. Readers of one value share a document, which none of them may change. */
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
    most: MOST_READ,
  })
}

/**
 * Puts documents there, each unless another has its `_id` or something else that is unique. `nameOf` tells what others may want to be unique by as well: of those of
 * one name a command has one. Two commands with several of them each would wait for each other, again and again.
 */
export function batchInserts<D extends Written>(collection: Collection<D>, nameOf: (document: D) => string, weigh: (document: D) => number): (document: D) => Promise<'added' | 'taken'> {
  return createBatcher<D, 'added' | 'taken'>({
    backend: 'store',
    async send(documents) {
      const sorted = inOrder(documents, nameOf)
      const { failed } = await writeAll(collection, sorted.map((document) => ({ insertOne: { document } }) as AnyBulkWriteOperation<D>))
      const told = new Map(sorted.map((document, n) => [document, outcomeOf(failed.get(n))]))
      return documents.map((document) => told.get(document) ?? unknown(null))
    },
    idOf: nameOf,
    shares: false,
    most: MOST_WRITTEN,
    weigh,
  })
}

function outcomeOf(failure: Failed | undefined): BatchOutcome<'added' | 'taken'> {
  if (!failure) return { answer: 'added' }
  return failure.code === DUPLICATE ? { answer: 'taken' } : unknown(failure)
}

/** Compare-and-set of whole documents. `lost`: the document was not as it should have been, or not there, and nothing happened. */
export function batchReplacements<D extends Written>(collection: Collection<D>, weigh: (document: D) => number): (swap: Replacement<D>) => Promise<'swapped' | 'lost'> {
  return createBatcher<Replacement<D>, 'swapped' | 'lost'>({
    backend: 'store',
    async send(swaps) {
      const sorted = inOrder(swaps, ({ next }) => next._id)
      const written = await writeAll(collection, sorted.map(({ next, when }) => ({ replaceOne: { filter: { _id: next._id, ...when } as Filter<D>, replacement: next } })))
      const failed = new Map([...written.failed].map(([n, failure]) => [sorted[n], failure]))
      const heard = swaps.filter((swap) => !failed.has(swap))
      const swapped = await swappedOf(collection, heard, written.matched)
      return swaps.map((swap) => (failed.has(swap) ? unknown(failed.get(swap)) : swapped(swap)))
    },
    idOf: ({ next }) => next._id,
    shares: false,
    most: MOST_WRITTEN,
    weigh: ({ next }) => weigh(next),
    longestMs: SWAP_MS,
  })
}

/**
 * Which of the swaps of one command happened, of which the server tells only how many did. Where that is neither all nor none the documents are looked at: who finds
 * its own `write` swapped, and if those are as many as happened, the others lost. Else one of those that happened was overwritten since, and nobody can tell it from one that lost.
 */
async function swappedOf<D extends Written>(collection: Collection<D>, swaps: Replacement<D>[], count: number): Promise<(swap: Replacement<D>) => BatchOutcome<'swapped' | 'lost'>> {
  if (count === swaps.length) return () => ({ answer: 'swapped' })
  if (count === 0) return () => ({ answer: 'lost' })
  const ids = { _id: { $in: swaps.map(({ next }) => next._id) } } as Filter<D>
  const found = await collection.find<Written>(ids, { projection: { write: 1 } }).toArray()
  const writes = new Set(found.map(({ write }) => write))
  const isThere = ({ next }: Replacement<D>) => writes.has(next.write)
  const others: BatchOutcome<'lost'> = swaps.filter(isThere).length === count ? { answer: 'lost' } : unknown('another has written since')
  return (swap) => (isThere(swap) ? { answer: 'swapped' } : others)
}

type Failed = { code?: number | string | undefined; errmsg?: string | undefined }
type Outcome = { matched: number; failed: Map<number, Failed> }

/**
 * Sends all in one command, none of which keeps another from happening, and again what gave way to others: one of those who are in a deadlock always gets on.
 * `failed`, by place: those that the server says did not happen, and why. Throws when no more is known.
 */
async function writeAll<D extends Document>(collection: Collection<D>, operations: AnyBulkWriteOperation<D>[], tries = MOST_TRIES): Promise<Outcome> {
  const { matched, failed } = await writeOnce(collection, operations)
  const places = [...failed].flatMap(([place, { code }]) => (code === DEADLOCK ? [place] : []))
  if (places.length === 0 || tries === 1) return { matched, failed }
  await pause(GIVE_WAY_MS)
  const again = await writeAll(collection, places.map((place) => operations[place]!), tries - 1)
  const others = [...failed].filter(([place]) => !places.includes(place))
  return { matched: matched + again.matched, failed: new Map([...others, ...[...again.failed].map(([n, failure]) => [places[n]!, failure] as const)]) }
}

async function writeOnce<D extends Document>(collection: Collection<D>, operations: AnyBulkWriteOperation<D>[]): Promise<Outcome> {
  try {
    const { matchedCount } = await collection.bulkWrite(operations, { ordered: false })
    return { matched: matchedCount, failed: new Map() }
  } catch (error) {
    // The driver makes the same error of an answer that never came. And what no majority has may be taken back.
    const isAnswer = error instanceof MongoBulkWriteError && error.result.hasWriteErrors() && !error.result.getWriteConcernError()
    if (!isAnswer) throw error
    return { matched: error.matchedCount, failed: new Map(error.result.getWriteErrors().map((failure) => [failure.index, failure])) }
  }
}

function unknown(cause: unknown): { failure: Unavailable } {
  return { failure: new Unavailable('store', cause) }
}

function inOrder<One>(all: One[], order: (one: One) => string): One[] {
  const keyed = all.map((one) => ({ one, key: order(one) }))
  return keyed.sort((a, b) => (a.key < b.key ? -1 : 1)).map(({ one }) => one)
}
