/** Schema version of a MongoDB store, and its migrations. */
import type { Collection, Db } from 'mongodb'
import { refuseNewer, refuseOther } from '../schema-version.ts'
import { add } from './database.ts'

/**
 * One migration, from a schema to the next. It changes only documents of the old shape, so that it may be repeated after a crash, run at the same time
 * in several processes, and run late. Programs of the old schema may still be running: a migration that changes tasks or records gives each a new `write`, and a
 * record a higher `version`; otherwise those programs would overwrite them with what they had read before.
 */
export type Upgrade = (db: Db) => Promise<void>

type Meta = { _id: string; version: number }

/** The schema before the first migration. */
const FIRST = 1

/**
 * Applies the missing migrations and records each when it is done. Throws an Error with a sentence for the operator if the store has a newer schema;
 * `place` names the store.
 */
export async function bringUpToDate(db: Db, upgrades: readonly Upgrade[], place: string): Promise<void> {
  const meta = db.collection<Meta>('meta')
  const newest = FIRST + upgrades.length
  const version = await versionOf(meta, newest)
  refuseNewer(version, newest, place)
  // Changes nothing, but detects missing write access at the start instead of at the first request.
  await meta.updateOne({ _id: 'schema' }, { $max: { version } })
  for (let from = version; from < newest; from++) {
    await upgrades[from - FIRST]?.(db)
    await meta.updateOne({ _id: 'schema', version: { $lt: from + 1 } }, { $set: { version: from + 1 } })
  }
}

/** Throws an Error with a sentence for the operator unless the store exists and has exactly this schema. Read-only. */
export async function assertUpToDate(db: Db, upgrades: readonly Upgrade[], place: string): Promise<void> {
  const newest = FIRST + upgrades.length
  const known = await db.collection<Meta>('meta').findOne({ _id: 'schema' })
  if (!known) throw new Error(`There is no store at ${place}: STORE_URL names another server or database.`)
  refuseOther(known.version, newest, place)
}

/** An empty store gets the newest schema, which is recorded before anything else is written. */
async function versionOf(meta: Collection<Meta>, newest: number): Promise<number> {
  for (;;) {
    const known = await meta.findOne({ _id: 'schema' })
    if (known) return known.version
    if ((await add(meta, { _id: 'schema', version: newest })) === 'added') return newest
  }
}
