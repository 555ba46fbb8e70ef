/**
 * The store in one SQLite file, for a single process. In the program one thread writes and another one reads, so that the thread that
 * serves never waits for the disk; tests and commands run the same statements in their own thread. Neither a `kill -9` nor a power failure
 * loses what was answered.
 */
import { openChanges } from '../group-commit.ts'
import type { Store, StoreOptions } from '../store.ts'
import { openDatabase, openToRead } from './database.ts'
import { openRecords, type RecordRows } from './records.ts'
import { scanning } from './scan.ts'
import { openThreads } from './writer-and-reader.ts'
import { UPGRADES } from './migrations.ts'
import { openVerbs, type Verbs } from './database-verbs.ts'

/** Opens `file`; fails as `openDatabase` and `openToRead` do. */
export async function openSqlite(file: string, options: StoreOptions = {}): Promise<Store> {
  if (options.threads && !options.readOnly) return openInThreads(file, options)
  const database = options.readOnly ? openToRead(file, UPGRADES) : openDatabase(file, UPGRADES)
  const verbs = openVerbs(database)
  const replaceRecord: RecordRows['replaceRecord'] = async (row, expected, replaced) => {
    const outcome = await verbs.replaceRecord(row, expected)
    if (outcome === 'replaced') replaced()
    return outcome
  }
  return composed(verbs, openRecords({ ...verbs, replaceRecord }, options), options, () => database.close())
}

async function openInThreads(file: string, options: StoreOptions): Promise<Store> {
  const threads = await openThreads(file, () => records.forget())
  const { verbs } = threads
  const records = openRecords({ ...verbs, replaceRecord: threads.replaceRecord }, options)
  return composed(verbs, records, options, threads.close)
}

function composed(
  all: Verbs,
  { records, verbs }: ReturnType<typeof openRecords>,
  options: StoreOptions,
  closeDatabase: () => Promise<void>,
): Store {
  const { findRecord: _find, replaceRecord: _replace, idsWith: _with, idsOfTenant: _of, scanRows, ...plain } = all
  const changes = openChanges(records, options)
  return {
    ...plain,
    ...verbs,
    clock: async () => Date.now(),
    change: changes.change,
    decide: changes.decide,
    decideNow: changes.decideNow,
    scan: scanning({ scanRows }),
    close: async () => {
      await changes.close()
      await closeDatabase()
    },
  }
}
