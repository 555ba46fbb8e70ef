/**
 * The real store beneath a simulation: SQLite in a folder that goes with it, or a database of its own on a real MongoDB server. What is
 * one transaction in SQLite is several writes in MongoDB, between which a verb can be torn.
 */
import { randomUUID } from 'node:crypto'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Collection, MongoClient, MongoNetworkError } from 'mongodb'
import type { Side } from '../../src/store/changes.ts'
import { openStore, type Store } from '../../src/store/store.ts'

/** The `write`th write from now fails, after it `happens` or instead. */
export type Tear = { write: number; happens: boolean }

export type Real = {
  store: Store
  /** The adapter's side of it, over which every process opens queues of its own. */
  side: Side
  /** Null where a verb is one transaction. Answers what ends the trouble. */
  tear: ((tear: Tear) => () => void) | null
  /** Closes it, and removes what it kept. */
  close(): Promise<void>
}

/** In memory where there is such a place: a disk that is asked to be sure takes longer than the story. */
const PLACE = existsSync('/dev/shm') ? '/dev/shm' : tmpdir()

/** `server`: the URL of a MongoDB server without a database's name; null is SQLite. */
export function openReal(server: string | null): Promise<Real> {
  return server === null ? openFile() : openDatabase(server)
}

async function openFile(): Promise<Real> {
  const folder = mkdtempSync(join(PLACE, 'tollgate-simulation-'))
  const opened = await open(`sqlite:${join(folder, 'tollgate.db')}`)
  return {
    ...opened,
    tear: null,
    async close() {
      await opened.store.close()
      rmSync(folder, { recursive: true })
    },
  }
}

async function openDatabase(server: string): Promise<Real> {
  const name = `simulation-${randomUUID()}`
  const [base = '', query] = server.split('?')
  const opened = await open(`${base.replace(/\/$/, '')}/${name}${query === undefined ? '' : `?${query}`}`)
  return {
    ...opened,
    tear: (armed) => {
      troubled()
      tearing = armed
      return () => (tearing = null)
    },
    async close() {
      await opened.store.close()
      const client = await new MongoClient(server).connect()
      await client.db(name).dropDatabase()
      await client.close()
    },
  }
}

async function open(url: string): Promise<Pick<Real, 'store' | 'side'>> {
  let found: Side | undefined
  const store = await openStore(url, { between: (side) => (found = side) })
  if (!found) throw new Error('the adapter has no side')
  return { store, side: found }
}

const WRITES = ['insertOne', 'updateOne', 'replaceOne', 'findOneAndUpdate', 'deleteOne', 'deleteMany', 'updateMany'] as const

/** One step is performed at a time, so that there is one of these. */
let tearing: Tear | null = null
let isTroubled = false

/** Puts trouble before the driver's writes, once in a process. */
function troubled(): void {
  if (isTroubled) return
  isTroubled = true
  for (const name of WRITES) {
    const whole = Collection.prototype[name] as (...values: unknown[]) => Promise<unknown>
    const torn = async function (this: Collection, ...values: unknown[]): Promise<unknown> {
      if (!tearing || --tearing.write !== 0) return whole.apply(this, values)
      if (tearing.happens) await whole.apply(this, values)
      throw new MongoNetworkError('the connection was lost')
    }
    Object.assign(Collection.prototype, { [name]: torn })
  }
}
