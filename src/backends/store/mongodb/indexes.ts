/** Creation of MongoDB indexes. Each is declared beside the query that uses it. */
import type { CreateIndexesOptions, Db, IndexDirection } from 'mongodb'

export type Index = {
  name: string
  key: Record<string, IndexDirection>
} & Pick<CreateIndexesOptions, 'unique' | 'partialFilterExpression'>

/** By collection. The index on `_id` is implicit. */
export type Indexes = Record<string, readonly Index[]>

/** Creates missing indexes. Safe to run in several processes at once. */
export async function createIndexes(db: Db, indexes: Indexes): Promise<void> {
  for (const [collection, declared] of Object.entries(indexes)) {
    if (declared.length > 0) await db.collection(collection).createIndexes([...declared])
  }
}
