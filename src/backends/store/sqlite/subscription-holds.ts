/**
 * The open holds of subscriptions in SQLite, a row per chunk beside the row of the record: a change writes the chunks that it changed,
 * whatever the length of the queue. Both are written in one transaction, and the version of the record is their only compare-and-set.
 */
import { changedChunks, chunkOf, holdsOfChunks, type Chunk, type Holds } from '../../../domain/subscription/holds.ts'
import type { Hold, MediaAccount, Subscription } from '../../../domain/subscription/subscription.ts'
import type { Database } from './database.ts'

/** `first` is the id of the first hold in the chunk; `holds` an object by task id. */
export const holdTables = `
  CREATE TABLE subscription_holds (
    subscription TEXT NOT NULL,
    first TEXT NOT NULL,
    holds TEXT NOT NULL,
    PRIMARY KEY (subscription, first)
  ) STRICT;
`

/** A column of `SELECT … FROM subscriptions`: all chunks, or null. One statement reads the record and its holds, so that no write comes between. */
export const HOLDS = `(SELECT group_concat(holds, ',' ORDER BY first) FROM subscription_holds WHERE subscription = subscriptions.id) AS holds`

/** A row of subscriptions with `HOLDS`. */
export type RecordRow = { record: string; holds: string | null }

/** About the characters of a stored hold. */
const HOLD_SIZE = 240

/** The record of a row, with its holds from their own table. */
export function recordOf({ record, holds }: RecordRow): Subscription {
  const { media, ...facts } = JSON.parse(record) as Omit<Subscription, 'media'> & { media: Omit<MediaAccount, 'holds'> | null }
  return { ...facts, media: media && { ...media, holds: holdsOf(holds) } }
}

function holdsOf(text: string | null): Holds {
  const chunks = text === null ? [] : (JSON.parse(`[${text}]`) as Record<string, Hold>[])
  return holdsOfChunks(
    chunks.map((chunk) => {
      const ids = Object.keys(chunk).sort()
      return chunkOf(
        ids,
        ids.map((id) => chunk[id] as Hold),
      )
    }),
  )
}

/** JSON of the record without what has rows of its own: its holds and usage records. */
export function headOf({ media, ...facts }: Subscription): string {
  return JSON.stringify({ ...facts, outbox: undefined, media: media && { ...media, holds: undefined } })
}

/** The size of a record in the cache. */
export function sizeOf(record: Subscription): number {
  return HOLD_SIZE * (16 + (record.media?.holds.count ?? 0))
}

/** The rows that a change of a record writes, plain data: `isWhole` when they are all that there are. */
export type HoldChanges = { isWhole: boolean; removed: string[]; written: { first: string; holds: string }[] }

/** `before`: the record that is replaced; without one, all chunks are written. */
export function holdChanges({ media }: Subscription, before: Subscription | null): HoldChanges {
  const { removed, added } = changedChunks(before?.media?.holds, media?.holds)
  const written = added.map((chunk) => ({ first: firstOf(chunk), holds: textOf(chunk) }))
  return { isWhole: !before, removed: removed.map(firstOf), written }
}

/** Returns the write of a record's chunks, to be made in one transaction with its row. */
export function openHoldRows(database: Database): (id: string, changes: HoldChanges) => void {
  const removeAll = database.prepare('DELETE FROM subscription_holds WHERE subscription = ?')
  const remove = database.prepare('DELETE FROM subscription_holds WHERE subscription = ? AND first = ?')
  const insert = database.prepare('INSERT INTO subscription_holds (subscription, first, holds) VALUES (?, ?, ?)')

  return (id, { isWhole, removed, written }) => {
    if (isWhole) removeAll.run(id)
    for (const first of removed) remove.run(id, first)
    for (const { first, holds } of written) insert.run(id, first, holds)
  }
}

function firstOf({ ids }: Chunk): string {
  return ids[0] as string
}

function textOf({ ids, holds }: Chunk): string {
  return JSON.stringify(Object.fromEntries(ids.map((id, n) => [id, holds[n]])))
}
