/**
 * The real store of a simulation: SQLite in a temporary folder, or a temporary database on a real MongoDB server. A verb that is one transaction in
 * SQLite may be several writes in MongoDB, and can be torn between them.
 */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { Collection, MongoClient, MongoNetworkError } from 'mongodb'
import type { VersionedRecords } from '../../src/backends/store/versioned-records.ts'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import { MEMORY } from '../memory-folder.ts'

/** The `write`th write of a verb, from 1, fails: after it took effect (`happens`), or instead. */
export type Tear = { write: number; happens: boolean }

/** The store as one process opened it. */
export type Handle = {
  store: Store
  /** The adapter's records, over which every process opens its own queues. */
  records: VersionedRecords
}

export type Real = {
  /** Assigned to processes in rotation, so that an adapter's caches may be stale. */
  handles: [Handle, ...Handle[]]
  /** Tears a verb, and waits for writes that it has started. Null where a verb is one transaction. */
  tear: (<T>(verb: () => Promise<T>, tear: Tear) => Promise<T>) | null
  /** From now on no usage record is lost on its way out of a plan's record. Until then every other insertion fails, as when its process ends before it. */
  recover(): void
  /** Closes the store and deletes its data. */
  close(): Promise<void>
}

const nextTick = () => new Promise<void>((resolve) => setImmediate(resolve))

/** `server`: URL of a MongoDB server without a database; null is SQLite. */
export function openReal(server: string | null): Promise<Real> {
  return server === null ? openFile() : openDatabase(server)
}

async function openFile(): Promise<Real> {
  const folder = mkdtempSync(join(MEMORY, 'tollgate-simulation-'))
  const url = `sqlite:${join(folder, 'tollgate.db')}`
  const handles: Real['handles'] = [await open(url), await open(url)]
  return {
    handles,
    tear: null,
    recover() {},
    async close() {
      for (const { store } of handles) await store.close()
      rmSync(folder, { recursive: true })
    },
  }
}

async function openDatabase(server: string): Promise<Real> {
  const name = `simulation-${randomUUID()}`
  const [base = '', query] = server.split('?')
  const url = `${base.replace(/\/$/, '')}/${name}${query === undefined ? '' : `?${query}`}`
  const { settled, recover } = loseInsertions()
  const opened = async (): Promise<Handle> => {
    const { store, records } = await open(url)
    return { store, records: { ...records, replace: (record, before) => records.replace(record, before).finally(settled) } }
  }
  const handles: Real['handles'] = [await opened(), await opened()]
  return {
    handles,
    tear,
    recover,
    async close() {
      recover()
      for (const { store } of handles) await store.close()
      const client = await new MongoClient(server).connect()
      await client.db(name).dropDatabase()
      await client.close()
    },
  }
}

async function open(url: string): Promise<Handle> {
  let found: VersionedRecords | undefined
  const store = await openStore(url, { wrap: (records) => (found = records) })
  if (!found) throw new Error('the adapter has no records')
  return { store, records: found }
}

/** Patches the driver until `recover`. `settled`: what a replacement inserts in the background belongs to its step; left alone, it would end at a later one on a busy machine. */
function loseInsertions(): { settled: () => Promise<void>; recover: () => void } {
  const { bulkWrite } = Collection.prototype
  const inProgress = new Set<Promise<unknown>>()
  let count = 0
  Collection.prototype.bulkWrite = function (this: Collection, ...values) {
    if (this.collectionName !== 'usage_records') return bulkWrite.apply(this, values)
    const written = count++ % 2 === 0 ? Promise.reject(new MongoNetworkError('the process has ended')) : bulkWrite.apply(this, values)
    inProgress.add(written)
    return written.finally(() => inProgress.delete(written))
  }
  return { settled: () => allSettled(inProgress), recover: () => void Object.assign(Collection.prototype, { bulkWrite }) }
}

/** Also of those that begin next, as a batch or the rest of a verb does. */
async function allSettled(inProgress: Set<Promise<unknown>>): Promise<void> {
  do {
    await Promise.allSettled(inProgress)
    await nextTick()
  } while (inProgress.size > 0)
}

const WRITES = ['bulkWrite', 'insertOne', 'updateOne', 'replaceOne', 'findOneAndUpdate', 'deleteOne', 'deleteMany', 'updateMany'] as const

/** Patches the driver's writes. One verb runs at a time, so all writes meanwhile belong to it. */
async function tear<T>(verb: () => Promise<T>, { write, happens }: Tear): Promise<T> {
  const original = Object.fromEntries(WRITES.map((name) => [name, Collection.prototype[name]]))
  const inProgress = new Set<Promise<unknown>>()
  let count = 0
  for (const name of WRITES) {
    const real = original[name] as (...values: unknown[]) => Promise<unknown>
    const faulty = async function (this: Collection, ...values: unknown[]): Promise<unknown> {
      const isLost = ++count === write
      if (isLost && !happens) throw new MongoNetworkError('the connection was lost')
      const written = real.apply(this, values)
      inProgress.add(written)
      await written.finally(() => inProgress.delete(written))
      if (isLost) throw new MongoNetworkError('the connection was lost')
      return written
    }
    Object.assign(Collection.prototype, { [name]: faulty })
  }
  try {
    return await verb()
  } finally {
    // A verb that failed may have writes in progress, each of which may start another.
    await allSettled(inProgress)
    Object.assign(Collection.prototype, original)
  }
}
