/**
 * The real store beneath a simulation: SQLite in a folder that goes with it, or a database of its own on a real MongoDB server. What is
 * one transaction in SQLite is several writes in MongoDB, between which a verb can be torn.
 */
import { randomUUID } from 'node:crypto'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Collection, MongoClient, MongoNetworkError } from 'mongodb'
import type { Side } from '../../src/backends/store/group-commit.ts'
import { openStore, type Store } from '../../src/backends/store/store.ts'

/** The `write`th write of a verb, the first being 1, fails after it happened, or instead. */
export type Tear = { write: number; happens: boolean }

/** The store as one program opened it. */
export type Handle = {
  store: Store
  /** The adapter's side of it, over which every process opens queues of its own. */
  side: Side
}

export type Real = {
  /** Processes take turns with them: what an adapter keeps in memory, another process may have made old. */
  handles: [Handle, ...Handle[]]
  /** Lets a verb be torn, and what it began beside end. Null where a verb is one transaction. */
  tear: (<T>(verb: () => Promise<T>, tear: Tear) => Promise<T>) | null
  /** Closes it, and removes what it kept. */
  close(): Promise<void>
}

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve))

/** In memory where there is such a place: a disk that is asked to be sure takes longer than the story. */
const PLACE = existsSync('/dev/shm') ? '/dev/shm' : tmpdir()

/** `server`: the URL of a MongoDB server without a database's name; null is SQLite. */
export function openReal(server: string | null): Promise<Real> {
  return server === null ? openFile() : openDatabase(server)
}

async function openFile(): Promise<Real> {
  const folder = mkdtempSync(join(PLACE, 'tollgate-simulation-'))
  const handle = await open(`sqlite:${join(folder, 'tollgate.db')}`)
  return {
    handles: [handle],
    tear: null,
    async close() {
      await handle.store.close()
      rmSync(folder, { recursive: true })
    },
  }
}

async function openDatabase(server: string): Promise<Real> {
  const name = `simulation-${randomUUID()}`
  const [base = '', query] = server.split('?')
  const url = `${base.replace(/\/$/, '')}/${name}${query === undefined ? '' : `?${query}`}`
  const handles: Real['handles'] = [await open(url), await open(url)]
  return {
    handles,
    tear,
    async close() {
      for (const { store } of handles) await store.close()
      const client = await new MongoClient(server).connect()
      await client.db(name).dropDatabase()
      await client.close()
    },
  }
}

async function open(url: string): Promise<Handle> {
  let found: Side | undefined
  const store = await openStore(url, { between: (side) => (found = side) })
  if (!found) throw new Error('the adapter has no side')
  return { store, side: found }
}

const WRITES = ['bulkWrite', 'insertOne', 'updateOne', 'replaceOne', 'findOneAndUpdate', 'deleteOne', 'deleteMany', 'updateMany'] as const

/** Puts trouble before the driver's writes. One verb is performed at a time, so that all writes meanwhile are those of this one. */
async function tear<T>(verb: () => Promise<T>, { write, happens }: Tear): Promise<T> {
  const whole = Object.fromEntries(WRITES.map((name) => [name, Collection.prototype[name]]))
  const underWay = new Set<Promise<unknown>>()
  let count = 0
  for (const name of WRITES) {
    const real = whole[name] as (...values: unknown[]) => Promise<unknown>
    const troubled = async function (this: Collection, ...values: unknown[]): Promise<unknown> {
      const isLost = ++count === write
      if (isLost && !happens) throw new MongoNetworkError('the connection was lost')
      const written = real.apply(this, values)
      underWay.add(written)
      await written.finally(() => underWay.delete(written))
      if (isLost) throw new MongoNetworkError('the connection was lost')
      return written
    }
    Object.assign(Collection.prototype, { [name]: troubled })
  }
  try {
    return await verb()
  } finally {
    // A verb that fails leaves behind what it did at the same time, and each of those may lead to the next.
    do {
      await Promise.allSettled(underWay)
      await nextTurn()
    } while (underWay.size > 0)
    Object.assign(Collection.prototype, whole)
  }
}
