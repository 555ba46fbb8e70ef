/** Which schema a MongoDB store has, and how a newer program brings it up to date. */
import type { Collection, Db } from 'mongodb'
import { refuseNewer, refuseOther } from '../schema-version.ts'
import { add } from './database.ts'

/**
 * One step, from a schema to the next. It changes only what still has the shape of before, so that it may be repeated after a crash, run
 * beside the same step of another process, and be late. The program of the schema before may still be at work until it is replaced: a step that
 * changes tasks gives each another `write`, and one that changes records raises `version`, or that program would put back what it had read before.
 */
export type Upgrade = (db: Db) => Promise<void>

type Meta = { _id: string; version: number }

/** The schema that was there before the first of all upgrades. */
const FIRST = 1

/**
 * Applies those of `upgrades` that the store has not had, each written down once it is done. Throws an Error with a sentence for the
 * operator if the store has a newer schema; `place` names the store.
 */
export async function bringUpToDate(db: Db, upgrades: readonly Upgrade[], place: string): Promise<void> {
  const meta = db.collection<Meta>('meta')
  const newest = FIRST + upgrades.length
  const version = await versionOf(meta, newest)
  refuseNewer(version, newest, place)
  // Changes nothing, and tells at the start what else the first request would: whether we may write.
  await meta.updateOne({ _id: 'schema' }, { $max: { version } })
  for (let from = version; from < newest; from++) {
    await upgrades[from - FIRST]?.(db)
    await meta.updateOne({ _id: 'schema', version: { $lt: from + 1 } }, { $set: { version: from + 1 } })
  }
}

/** Throws an Error with a sentence for the operator unless the store is there and has just this schema. Changes nothing. */
export async function assertUpToDate(db: Db, upgrades: readonly Upgrade[], place: string): Promise<void> {
  const newest = FIRST + upgrades.length
  const known = await db.collection<Meta>('meta').findOne({ _id: 'schema' })
  if (!known) throw new Error(`There is no store at ${place}: STORE_URL names another server or database.`)
  refuseOther(known.version, newest, place)
}

/** An empty store has the newest schema. It is written down before anything else is, by one of those who find it so. */
async function versionOf(meta: Collection<Meta>, newest: number): Promise<number> {
  for (;;) {
    const known = await meta.findOne({ _id: 'schema' })
    if (known) return known.version
    if ((await add(meta, { _id: 'schema', version: newest })) === 'added') return newest
  }
}
