/** Empty stores in one MongoDB database per test, dropped at its end. They share the database because creating its indexes takes longer than most tests. */
import { randomUUID } from 'node:crypto'
import { MongoClient, type Db } from 'mongodb'
import type { Test } from 'tap'
import { openStore, type Store } from '../../../src/backends/store/store.ts'
import type { Place } from '../../contracts/store.ts'
import { mongodb } from '../../servers/mongodb.ts'

export type Empty = {
  /** The URL for `openStore`. */
  url: string
  /** The raw database. */
  db: Db
  place(t: Test): Promise<Place>
}

/** `server`: URL of test/servers/mongodb.ts; `options`: query of the URL, such as `?retryReads=false`; `through`: the URL by which stores reach it. */
export async function emptyDatabase(t: Test, server: string, options = '', through = server): Promise<Empty> {
  const name = `tollgate-${randomUUID()}`
  const client = new MongoClient(server)
  const db = client.db(name)
  t.teardown(async () => {
    await db.dropDatabase()
    await client.close()
  })
  const url = `${through}${name}${options}`
  return {
    url,
    db,
    async place(t) {
      const opened: Store[] = []
      t.teardown(() => Promise.all(opened.map((store) => store.close())))
      const used = await db.collections()
      await Promise.all(used.filter(({ collectionName }) => collectionName !== 'meta').map((collection) => collection.deleteMany({})))
      return {
        async open(options) {
          const store = await openStore(url, options)
          opened.push(store)
          return store
        },
      }
    },
  }
}

/** The body of a test on an empty database of the shared server; the test is skipped where none is installed. */
export const onMongodb = (body: (t: Test, empty: Empty) => Promise<void>) => async (t: Test) => {
  const server = await mongodb(t)
  if (server) await body(t, await emptyDatabase(t, server))
}
