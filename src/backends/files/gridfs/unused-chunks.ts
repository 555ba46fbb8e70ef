/** Chunks that may be unreferenced: noted before they are written, before their file is removed or replaced, and removed by a sweep a day later unless a file references them. */
import { randomUUID } from 'node:crypto'
import type { Collection } from 'mongodb'
import { guard, patiently } from './gridfs-client.ts'

/** How long chunks stay that no file references: their writer or a reader may still use them. */
export const UNUSED_MS = 24 * 3600 * 1000
const UNUSED_BATCH = 100

/** `due`: epoch milliseconds. `note` identifies one entry, so that no process withdraws another's. */
export type UnusedDocument = { _id: string; due: number; note: string }

type Collections = {
  files: Pick<Collection<{ _id: string; chunksId: string }>, 'findOne'>
  chunks: Pick<Collection<{ files_id: string }>, 'deleteMany'>
  unused: Collection<UnusedDocument>
}

export type UnusedChunks = {
  /** Notes that these chunks may be unreferenced. Returns a function that withdraws the note unless it was renewed. */
  noteUnused(ids: string[]): Promise<() => Promise<unknown>>
  /** Removes noted chunks that are due at `now` (epoch milliseconds) and that no file references; a batch a call. */
  sweepUnused(now: number): Promise<void>
}

/** `writing`: the chunks that this process is writing, which a sweep leaves. */
export function openUnusedChunks({ files, chunks, unused }: Collections, writing: ReadonlySet<string>): UnusedChunks {
  return {
    async noteUnused(ids) {
      const note = randomUUID()
      const update = { $set: { due: Date.now() + UNUSED_MS, note } }
      if (ids.length > 0)
        await patiently(() =>
          unused.bulkWrite(
            ids.map((_id) => ({ updateOne: { filter: { _id }, update, upsert: true } })),
            { ordered: false },
          ),
        )
      return () => guard(() => unused.deleteMany({ _id: { $in: ids }, note }))
    },

    async sweepUnused(now) {
      const due = await guard(() => unused.find({ due: { $lte: now } }, { sort: { due: 1 }, limit: UNUSED_BATCH + writing.size }).toArray())
      for (const { _id, note } of due) {
        if (writing.has(_id)) continue
        await guard(async () => {
          if (!(await files.findOne({ chunksId: _id }, { projection: { _id: 1 } }))) await chunks.deleteMany({ files_id: _id })
          await unused.deleteOne({ _id, note })
        })
      }
    },
  }
}
