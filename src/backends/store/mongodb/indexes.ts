/** Creation of MongoDB indexes. Each is declared beside the query that uses it. */
import { MongoServerError, type CreateIndexesOptions, type Db, type IndexDirection } from 'mongodb'

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

/** Drops those of these indexes that are there, by collection and name. Safe to run in several processes at once. */
export async function dropIndexes(db: Db, obsolete: Record<string, readonly string[]>): Promise<void> {
  for (const [collection, names] of Object.entries(obsolete)) {
    const there = await db.collection(collection).indexes()
    for (const { name = '' } of there.filter((index) => names.includes(index.name ?? '')))
      await db.collection(collection).dropIndex(name).catch(ignoreMissing)
  }
}

/** Another process has dropped it. */
function ignoreMissing(error: unknown): void {
  if (!(error instanceof MongoServerError) || error.codeName !== 'IndexNotFound') throw error
}
