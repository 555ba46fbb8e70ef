/**
 * One SQLite file: opening, migrations, reads, and writes in one transaction per tick of the event loop. Nothing else imports
 * node:sqlite.
 */
import { accessSync, chmodSync, closeSync, constants, existsSync, mkdirSync, openSync } from 'node:fs'
import { dirname, resolve as absolute } from 'node:path'
import { DatabaseSync, type SQLInputValue } from 'node:sqlite'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { Unavailable, Unwritable } from '../../../domain/errors.ts'
import { refuseNewer, refuseOther } from '../schema-version.ts'

/** A prepared statement with rows of type `Row`. `run` returns the number of changed rows. */
export type Statement<Row> = {
  get(...values: SQLInputValue[]): Row | undefined
  all(...values: SQLInputValue[]): Row[]
  run(...values: SQLInputValue[]): number
}

/** A prepared query of the column `record`, by what its JSON holds. */
type Records<Entity> = { get(...values: SQLInputValue[]): Entity | null; all(...values: SQLInputValue[]): Entity[] }

export type Database = {
  prepare<Row>(sql: string): Statement<Row>
  records<Entity>(sql: string): Records<Entity>
  /** Runs on committed data: at once, or in the next turn of the event loop when this one has had its share of reads. */
  read<T>(work: () => T): Promise<T>
  /**
   * Runs `work` at the end of this tick of the event loop, in one transaction with all other writes, and resolves after the commit. `work` is
   * atomic. If it throws, it alone is rolled back.
   */
  write<T>(work: () => T): Promise<T>
  /** Commits pending writes, then closes the file. Later calls are `Unavailable`. Idempotent. */
  close(): Promise<void>
}

/** How long SQLite waits for a lock of another process (`tollgate verify`, a backup). It blocks this process. */
const BUSY_MS = 1000

/** A sweep that awaits ten thousand reads one after the other would not leave the turn otherwise: each resolves at once. */
const READS_PER_TURN = 200

// Primary result codes, https://www.sqlite.org/rescode.html; the extended ones carry them in their low byte.
const SQLITE_BUSY = 5
const SQLITE_LOCKED = 6
const SQLITE_READONLY = 8
const SQLITE_IOERR = 10
const SQLITE_CORRUPT = 11
const SQLITE_FULL = 13
const SQLITE_CONSTRAINT = 19
const SQLITE_NOTADB = 26
/** Errors that do not pass by themselves. A quota and a file system that became read-only are errors of input and output. */
const LASTING: (number | null)[] = [SQLITE_READONLY, SQLITE_IOERR, SQLITE_CORRUPT, SQLITE_FULL, SQLITE_NOTADB]

/**
 * Opens the file, created with mode 0600 (its folder with 0700) if missing, and applies the missing `upgrades`; the schema version is their
 * number. Throws `Unavailable` while another process locks it, and an Error whose sentence names the file if it cannot be opened, is
 * damaged, belongs to another program, or has a newer schema.
 */
export function openDatabase(file: string, upgrades: readonly string[], { marks = false } = {}): Database {
  return opened(file, (path) => {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    closeSync(openSync(path, 'a', 0o600))
    const db = new DatabaseSync(path, { timeout: BUSY_MS })
    const prepare = () => {
      refuseForeign(db, path)
      for (const name of [path, `${path}-wal`, `${path}-shm`]) if (existsSync(name)) chmodSync(name, 0o600)
      db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF')
      upgrade(db, path, upgrades)
    }
    return { db, prepare, ...(marks ? { committed: () => openMark(path) } : {}) }
  })
}

/**
 * Opens an existing file of exactly this schema read-only: every write fails. The file and its folder may be without write access. Throws as
 * `openDatabase` does, and an Error with a sentence when there is no store.
 */
export function openToRead(file: string, upgrades: readonly string[]): Database {
  return opened(file, (path) => {
    if (!existsSync(path)) throw absent(path)
    const isWritable = [path, dirname(path)].every(canWrite)
    // Without write access, SQLite cannot create the files that readers of a WAL share. Without a WAL there is no writer, and they are not needed.
    const place = isWritable || existsSync(`${path}-wal`) ? path : new URL('?immutable=1', pathToFileURL(path))
    const db = new DatabaseSync(place, { timeout: BUSY_MS, readOnly: !isWritable })
    const prepare = () => {
      db.exec('PRAGMA query_only = ON; PRAGMA trusted_schema = OFF')
      refuseForeign(db, path)
      if (!db.prepare(`SELECT 1 FROM sqlite_schema WHERE name = 'meta'`).get()) throw absent(path)
      refuseOther(schemaOf(db), upgrades.length, path)
    }
    return { db, prepare }
  })
}

/** Closes a file that cannot be used, and throws the reason as a sentence. */
function opened(file: string, open: (path: string) => { db: DatabaseSync; prepare: () => void; committed?: () => Mark }): Database {
  const path = absolute(file)
  let db: DatabaseSync | undefined
  try {
    const found = open(path)
    db = found.db
    found.prepare()
    return databaseOf(db, found.committed?.())
  } catch (error) {
    db?.close()
    throw openingFailure(error, path)
  }
}

function absent(path: string): Error {
  return new Error(`There is no store at ${path}: STORE_URL, or DATA_DIR when STORE_URL is not set, names another place.`)
}

function canWrite(path: string): boolean {
  try {
    accessSync(path, constants.W_OK)
    return true
  } catch {
    return false
  }
}

function refuseForeign(db: DatabaseSync, path: string): void {
  const count = db.prepare(`SELECT count(*) AS tables, count(*) FILTER (WHERE name = 'meta') AS ours FROM sqlite_schema`)
  const { tables, ours } = count.get() ?? {}
  if (tables !== 0 && ours !== 1) throw new Error(`The store ${path} holds the data of another program: give Tollgate a file of its own.`)
}

/** Migrates under an exclusive lock: a second process waits, and finds it done. */
function upgrade(db: DatabaseSync, path: string, upgrades: readonly string[]): void {
  db.exec('BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT')
  const version = schemaOf(db)
  refuseNewer(version, upgrades.length, path)
  const earliest = upgrades.findIndex((sql) => sql !== '') + 1
  if (version > 0 && version < earliest)
    throw new Error(`The store ${path} has schema ${version}, and schema ${earliest} is the earliest that is upgraded.`)
  for (const sql of upgrades.slice(version)) db.exec(sql)
  db.prepare(`INSERT INTO meta VALUES ('schema', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`).run(String(upgrades.length))
  db.exec('COMMIT')
}

function schemaOf(db: DatabaseSync): number {
  return Number(db.prepare(`SELECT value FROM meta WHERE name = 'schema'`).get()?.['value'] ?? 0)
}

function openingFailure(error: unknown, path: string): unknown {
  const code = sqliteCode(error)
  if (code === SQLITE_BUSY || code === SQLITE_LOCKED) return new Unavailable('store', error)
  if (code === SQLITE_CORRUPT || code === SQLITE_NOTADB) {
    const sentence = `The store ${path} is damaged or no SQLite file: restore a backup, or move the file away to start with an empty store.`
    return new Error(sentence, { cause: error })
  }
  if (error instanceof Error && 'code' in error) return new Error(`The store ${path} cannot be opened: ${error.message}.`, { cause: error })
  return error
}

/** SQLite's primary result code, or null if the error is not SQLite's. */
function sqliteCode(error: unknown): number | null {
  const facts = error as { code?: unknown; errcode?: unknown } | null
  return facts?.code === 'ERR_SQLITE_ERROR' ? Number(facts.errcode) & 0xff : null
}

/**
 * The error that the backend throws: `Unavailable` for errors of SQLite and of a closed file, `Unwritable` for those that last; programming
 * errors pass unchanged.
 */
function toBackendError(error: unknown): unknown {
  const closed = (error as { code?: unknown } | null)?.code === 'ERR_INVALID_STATE'
  const code = sqliteCode(error)
  if (LASTING.includes(code)) return new Unwritable('store', error)
  return closed || code !== null ? new Unavailable('store', error) : error
}

type Mark = { set(): void; close(): void }

/**
 * The first reader after a commit writes its mark into the file that readers share (https://www.sqlite.org/walformat.html#wal_locks), and
 * would wait there for a disk that stalls. This connection sets the mark right after the commit, so that later readers only read.
 */
function openMark(path: string): Mark {
  const db = new DatabaseSync(path, { timeout: BUSY_MS, readOnly: true })
  const read = db.prepare('SELECT 1 FROM meta LIMIT 1')
  return { set: () => void read.get(), close: () => db.close() }
}

function databaseOf(db: DatabaseSync, mark?: Mark): Database {
  const { write, flush } = transactions(db, () => mark?.set())
  let closed: Promise<void> | undefined
  let reads = 0

  function prepare<Row>(sql: string): Statement<Row> {
    const prepared = db.prepare(sql)
    return {
      get: (...values) => prepared.get(...values) as Row | undefined,
      all: (...values) => prepared.all(...values) as Row[],
      run: (...values) => Number(prepared.run(...values).changes),
    }
  }

  function records<Entity>(sql: string): Records<Entity> {
    const { get, all } = prepare<{ record: string }>(sql)
    return {
      get: (...values) => JSON.parse(get(...values)?.record ?? 'null') as Entity | null,
      all: (...values) => all(...values).map(({ record }) => JSON.parse(record) as Entity),
    }
  }

  async function read<T>(work: () => T): Promise<T> {
    while (reads >= READS_PER_TURN) await nextTurn()
    if (reads++ === 0) setImmediate(() => (reads = 0))
    try {
      return work()
    } catch (error) {
      throw toBackendError(error)
    }
  }

  async function close(): Promise<void> {
    flush()
    mark?.close()
    db.close()
  }

  return { prepare, records, read, write, close: () => (closed ??= close()) }
}

type Write = { work: () => unknown; resolve: (value: never) => void; reject: (error: unknown) => void }

/** Batches the writes of one tick of the event loop; `flush` commits them, then resolves their promises. */
function transactions(db: DatabaseSync, committed: () => void): { write: Database['write']; flush: () => void } {
  const [begin, commit] = [db.prepare('BEGIN IMMEDIATE'), db.prepare('COMMIT')]
  const [savepoint, rollbackTo, release] = [db.prepare('SAVEPOINT one'), db.prepare('ROLLBACK TO one'), db.prepare('RELEASE one')]
  let pending: Write[] = []

  function write<T>(work: () => T): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (pending.length === 0) setImmediate(flush)
      pending.push({ work, resolve, reject })
    })
  }

  function flush(): void {
    const batch = pending
    pending = []
    if (batch.length === 0) return
    try {
      rollBack(db)
      begin.run()
      const answers = batch.map(perform)
      commit.run()
      for (const answer of answers) answer()
      committed()
    } catch (error) {
      for (const { reject } of batch) reject(toBackendError(error))
      rollBack(db)
    }
  }

  /**
   * Runs one write. A constraint violation or a programming error rolls back this write alone; any other error of SQLite may have rolled
   * back more.
   */
  function perform({ work, resolve, reject }: Write): () => void {
    savepoint.run()
    try {
      const value = work() as never
      release.run()
      return () => resolve(value)
    } catch (error) {
      const code = sqliteCode(error)
      if (code !== null && code !== SQLITE_CONSTRAINT) throw error
      rollbackTo.run()
      release.run()
      return () => reject(toBackendError(error))
    }
  }

  return { write, flush }
}

/** Ends an open transaction. If SQLite refuses now, it is tried again before the next transaction. */
function rollBack(db: DatabaseSync): void {
  try {
    if (db.isTransaction) db.exec('ROLLBACK')
  } catch {
    // The next `BEGIN` fails with the reason.
  }
}
