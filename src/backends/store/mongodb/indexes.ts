/** What an index is here, and how those of all rooms are made. Each is declared beside the query that it serves. */
import type { CreateIndexesOptions, Db, IndexDirection } from 'mongodb'

export type Index = {
  name: string
  key: Record<string, IndexDirection>
} & Pick<CreateIndexesOptions, 'unique' | 'partialFilterExpression'>

/** By collection. Every document is found by its `_id` without one. */
export type Indexes = Record<string, readonly Index[]>

/** Makes those that are not there. Another process may be doing the same. */
export async function makeIndexes(db: Db, indexes: Indexes): Promise<void> {
  for (const [collection, declared] of Object.entries(indexes)) {
    if (declared.length > 0) await db.collection(collection).createIndexes([...declared])
  }
}
