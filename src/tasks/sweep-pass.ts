/** One pass of a sweep over many records or tasks: one of them that fails or is busy does not hold up the others. */
import { Busy, Unavailable } from '../domain/errors.ts'

/** Items in progress at once: a busy record takes seconds before it fails. */
const CONCURRENT = 8
/** So many items in a row to which the store gave no answer end a pass. */
const UNANSWERED_MAX = 3

/**
 * Runs `work` for each item, a few at a time, and `failed` for each that throws. Throws the `Unavailable` of an item when the store is unavailable, the error of `items`, and those
 * of `failed`; items that were not begun are left to the next pass.
 */
export async function sweepEach<T>(
  items: Iterable<T> | AsyncIterable<T>,
  work: (item: T) => Promise<unknown>,
  failed: (item: T, error: unknown) => unknown,
): Promise<void> {
  const rest = Symbol.asyncIterator in items ? items[Symbol.asyncIterator]() : items[Symbol.iterator]()
  let unanswered = 0
  let isOver = false

  async function sweep(item: T): Promise<void> {
    try {
      await work(item)
      unanswered = 0
    } catch (error) {
      unanswered = error instanceof Unavailable && !(error instanceof Busy) ? unanswered + 1 : 0
      if (unanswered >= UNANSWERED_MAX) throw error
      await failed(item, error)
    }
  }

  async function run(): Promise<void> {
    try {
      for (let next = await rest.next(); !next.done && !isOver; next = await rest.next()) await sweep(next.value)
    } finally {
      isOver = true
    }
  }

  await allOf(Array.from({ length: CONCURRENT }, run))
}

/** Waits for all: none is cut off by another one that fails. Throws the first failure. */
export async function allOf(works: Promise<unknown>[]): Promise<void> {
  const failed = (await Promise.allSettled(works)).find((work) => work.status === 'rejected')
  if (failed) throw failed.reason
}
