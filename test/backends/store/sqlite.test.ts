import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Worker } from 'node:worker_threads'
import { DatabaseSync } from 'node:sqlite'
import t, { type Test } from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import { openDatabase } from '../../../src/backends/store/sqlite/database.ts'
import { UPGRADES } from '../../../src/backends/store/sqlite/migrations.ts'
import { openStore, type Store, type StoreOptions } from '../../../src/backends/store/store.ts'
import type { Price } from '../../../src/domain/plans.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { storePromises, type Place } from '../../contracts/store.ts'
import { admit, hold, ID, keyVersion, mediaPlan, plan, T0, task, taskId } from '../../contracts/store/acme.ts'
import { asIfReplicated } from '../../contracts/store/replicated.ts'

function freshFile(t: Test, threads = false): Place & { file: string; open(options?: StoreOptions): Promise<Store> } {
  const file = `${t.testdir()}/data/tollgate.db`
  const opened: Store[] = []
  t.teardown(() => Promise.all(opened.map((store) => store.close())))
  return {
    file,
    async open(options) {
      const store = await openStore(`sqlite:${file}`, { ...options, threads: threads && opened.length === 0 })
      opened.push(store)
      return store
    },
  }
}

t.test('SQLite keeps the store contract, the first handle in threads of its own', { timeout: 600_000 }, (t) => runContract(t, storePromises, (t) => freshFile(t, true)))

t.test('SQLite keeps the store contract in the thread of its caller, as if it were replicated', (t) =>
  runContract(t, storePromises, (t) => asIfReplicated(freshFile(t), 1), {
    'one handle applies commands in the order of their calls': 'calls alternate between two handles',
  }))

t.test('excusing an adapter from an unknown promise throws', async (t) => {
  await t.rejects(runContract(t, storePromises, (t) => freshFile(t), { 'it never rains': 'desert' }), Error)
})

t.test('a process killed with SIGKILL loses nothing that was answered', async (t) => {
  const place = freshFile(t)
  const program = `
    import { writeSync } from 'node:fs'
    const { openStore } = await import(${JSON.stringify(new URL('../../../src/backends/store/store.ts', import.meta.url).href)})
    const { admit, ID, plan, T0 } = await import(${JSON.stringify(new URL('../../contracts/store/acme.ts', import.meta.url).href)})
    const store = await openStore(${JSON.stringify(`sqlite:${place.file}`)}, { threads: true, isSole: true })
    for (let i = 0; ; i++) {
      const id = 'acme/' + (i % 7)
      if (i < 7) await store.change(id, plan(), T0)
      const admitted = i % 2 === 0 ? store.change(id, admit('r' + i, 1), T0) : store.decide(id, admit('r' + i, 1), T0).then(({ durable }) => durable)
      await Promise.all([admitted, store.heartbeat('gateway', i)])
      writeSync(1, id + ' r' + i + '\\n')
    }
  `
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(() => child.kill('SIGKILL'))
  const answered: [string, string][] = []
  for await (const line of createInterface(child.stdout)) {
    answered.push(line.split(' ') as [string, string])
    if (answered.length === 500) child.kill('SIGKILL')
  }
  if (child.signalCode === null) await once(child, 'exit')
  t.equal(child.signalCode, 'SIGKILL')
  t.ok(answered.length >= 500)

  const store = await place.open()
  for (let i = 0; i < 7; i++) {
    const record = await store.subscription(`acme/${i}`)
    const missing = answered.filter(([id, request]) => id === `acme/${i}` && !record?.coding?.reservations[request])
    t.same(missing, [])
  }
  t.ok(((await store.heartbeats())[0]?.count ?? 0) >= answered.length - 1)
})

t.test('when a thread of the database ends, its calls are unavailable, another one starts, and nothing that was answered is lost', async (t) => {
  const threads: Worker[] = []
  const collect = (worker: Worker) => void threads.push(worker)
  process.on('worker', collect)
  t.teardown(() => process.off('worker', collect))
  const store = await freshFile(t, true).open({ isSole: true })
  await store.change(ID, plan(), T0)
  const [writer, reader] = threads
  const cut = Promise.allSettled([store.heartbeat('i1', 1), store.heartbeats()])
  await Promise.all([writer?.terminate(), reader?.terminate()])
  for (const outcome of await cut) if (outcome.status === 'rejected') t.type(outcome.reason, Unavailable)
  const retried = async <T>(call: () => Promise<T>): Promise<T> => call().catch(() => new Promise((resolve) => setTimeout(resolve, 20)).then(() => retried(call)))
  t.match(await retried(() => store.change(ID, admit('r1', 1), T0)), { outcome: 'admitted' })
  await retried(() => store.heartbeat('i2', 1))
  t.match((await retried(() => store.heartbeats())).at(-1), { instance: 'i2' })
  t.same(Object.keys((await store.subscription(ID))?.coding?.reservations ?? {}), ['r1'])
  t.equal(threads.length, 4)
  await store.close()
  await t.rejects(store.heartbeat('i3', 1), Unavailable)
})

t.test('the file and a folder created for it are accessible to their owner only', async (t) => {
  const place = freshFile(t)
  const store = await place.open()
  await store.heartbeat('i1', 1)
  const mode = (path: string) => (statSync(path).mode & 0o777).toString(8)
  t.equal(mode(dirname(place.file)), '700')
  for (const file of ['', '-wal', '-shm']) t.equal(mode(place.file + file), '600')

  await store.close()
  chmodSync(place.file, 0o644)
  await place.open()
  t.equal(mode(place.file), '600')
})

t.test('a schema before the first that is upgraded is refused', async (t) => {
  const place = freshFile(t)
  await (await place.open()).close()
  const raw = new DatabaseSync(place.file)
  raw.exec(`UPDATE meta SET value = '8'`)
  raw.close()
  await t.rejects(place.open(), { message: `The store ${place.file} has schema 8, and schema 9 is the earliest that is upgraded.` })
})

t.test('a newer schema is refused and left unchanged', async (t) => {
  const place = freshFile(t)
  const store = await place.open()
  await store.heartbeat('i1', 1)
  await store.close()
  const raw = new DatabaseSync(place.file)
  t.same({ ...raw.prepare('SELECT * FROM meta').get() }, { name: 'schema', value: String(UPGRADES.length) })
  raw.exec(`UPDATE meta SET value = '1000'`)
  raw.close()
  const sentence = new RegExp(`^The store ${place.file} has schema 1000 and this Tollgate supports none newer than ${UPGRADES.length}: .+\\.$`)
  await t.rejects(place.open(), { message: sentence })
  const again = new DatabaseSync(place.file)
  t.same({ ...again.prepare('SELECT count FROM beats').get() }, { count: 1 })
  again.close()
})

t.test('each migration is applied once, and all of them or none', async (t) => {
  const file = `${t.testdir()}/tollgate.db`
  const first = 'CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1)'
  const second = 'INSERT INTO a VALUES (2)'
  await openDatabase(file, [first]).close()
  const broken = [first, second, 'INSERT INTO nowhere VALUES (3)']
  t.throws(() => openDatabase(file, broken), { message: new RegExp(`^The store ${file} cannot be opened: `) })
  await openDatabase(file, [first, second]).close()
  const database = openDatabase(file, [first, second])
  t.same(database.prepare<{ x: number }>('SELECT x FROM a').all().map(({ x }) => x), [1, 2])
  await database.close()
})

t.test('tasks and prices of earlier releases, whose kind was stored as `verb`, are migrated', async (t) => {
  const file = `${t.testdir()}/tollgate.db`
  const older = openDatabase(file, UPGRADES.slice(0, 11))
  const prices: Price[] = [{ kind: 'image', micro: 40_000, per: 'Job' }, { kind: 'upscale', micro: 123_456_789_012, per: 'Megapixel' }]
  const planned = reduce<'applyPlan'>(null, mediaPlan({ prices }), T0, 'acme/studio').record!
  const tasks = [task(1, { price: prices[0]! }), task(2, { object: 'operation', kind: 'upscale', state: 'queued', price: prices[1]! })]
  const insertTask = older.prepare('INSERT INTO tasks (id, tenant, object, verb, created_at, state, record) VALUES (?, ?, ?, ?, ?, ?, ?)')
  const insertPlan = older.prepare('INSERT INTO subscriptions (id, version, has_plan, has_reservations, has_holds, has_past, record) VALUES (?, 7, 1, 0, 0, 0, ?)')
  const text = (record: object) => JSON.stringify(record).replaceAll('"kind":', '"verb":')
  await older.write(() => {
    for (const one of tasks) insertTask.run(one.id, one.tenant, one.object, one.kind, one.createdAt, one.state, text(one))
    insertPlan.run('acme/studio', text({ ...planned, version: 7, media: { ...planned.media, holds: undefined } }))
    insertPlan.run('acme/code', JSON.stringify({ ...reduce<'applyPlan'>(null, plan(), T0, ID).record!, version: 7 }))
  })
  await older.close()

  const store = await openStore(`sqlite:${file}`)
  const all = { object: 'operation', kind: 'upscale', status: null, createdAfter: null, createdBefore: null } as const
  t.same(await store.tasks('acme', all, null, 10), [tasks[1]])
  t.same(await store.task('acme', tasks[0]!.id), tasks[0])
  t.same((await store.subscription('acme/studio'))?.terms, planned.terms)
  t.equal((await store.subscription('acme/code'))?.terms.media, null)
  await store.close()
})

t.test('the event loop turns between thousands of reads that are awaited one after the other', async (t) => {
  const store = await freshFile(t).open()
  let turns = 0
  let isOver = false
  const turn = () => {
    turns++
    if (!isOver) setImmediate(turn)
  }
  turn()
  for (let n = 0; n < 5000; n++) await store.task('acme', taskId(n))
  isOver = true
  t.ok(turns >= 5000 / 200, `${turns} turns`)
})

t.test('a change writes only the chunks of holds that it changes', async (t) => {
  const file = `${t.testdir()}/tollgate.db`
  const store = await openStore(`sqlite:${file}`)
  await store.change('acme/studio', mediaPlan({ maxQueuedTasks: 10_000 }), T0)
  await Promise.all(Array.from({ length: 1000 }, (_, n) => store.change('acme/studio', hold(taskId(n)), T0)))
  const raw = new DatabaseSync(file)
  raw.exec('CREATE TABLE written (n); CREATE TRIGGER count_writes AFTER INSERT ON subscription_holds BEGIN INSERT INTO written VALUES (1); END')
  const count = (table: string) => Number(raw.prepare(`SELECT count(*) AS n FROM ${table}`).get()?.['n'])
  const written = async (change: () => Promise<unknown>) => {
    const before = count('written')
    await change()
    return count('written') - before
  }
  t.equal(count('subscription_holds'), 16)
  t.equal(await written(() => store.change('acme/studio', hold(taskId(1000)), T0)), 1)
  t.equal(await written(() => store.change('acme/studio', { op: 'claim', claim: 'w', kinds: ['image'] }, T0)), 1)
  t.equal(await written(() => store.change('acme/studio', { op: 'close', task: taskId(0), actual: null }, T0)), 1)
  t.equal(await written(() => store.change('acme/studio', { op: 'keysChanged' }, T0)), 0)
  const record = await store.subscription('acme/studio')
  await store.close()
  const again = await openStore(`sqlite:${file}`)
  t.same(await again.subscription('acme/studio'), record, 'what was written is what is read')
  t.equal(await written(() => again.change('acme/studio', { op: 'close', task: taskId(500), actual: null }, T0)), 1, 'from a record that was read')
  raw.close()
  await again.close()
})

t.test('several processes that start at once migrate an older store once, also after one was killed half-way', async (t) => {
  const file = `${t.testdir()}/tollgate.db`
  const first = 'CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1)'
  const second = 'UPDATE a SET x = x + 1; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) INSERT INTO a SELECT 7 FROM n WHERE i > 199990'
  await openDatabase(file, [first]).close()
  const module = new URL('../../../src/backends/store/sqlite/database.ts', import.meta.url).href
  const start = (upgrades: string[]) => {
    const program = `
      import { writeSync } from 'node:fs'
      const { openDatabase } = await import(${JSON.stringify(module)})
      writeSync(1, 'begun')
      for (;;) {
        try {
          await openDatabase(${JSON.stringify(file)}, ${JSON.stringify(upgrades)}).close()
          break
        } catch (error) {
          if (error.name !== 'Unavailable' && error.name !== 'Busy') throw error
        }
      }`
    return spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  }
  const endless = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO a SELECT 8 FROM n'
  const killed = start([first, second, endless])
  await once(killed.stdout, 'data')
  const other = new DatabaseSync(file, { timeout: 0 })
  const isLocked = () => {
    try {
      other.exec('BEGIN IMMEDIATE; ROLLBACK')
      return false
    } catch {
      return true
    }
  }
  while (!isLocked()) await new Promise((resolve) => setImmediate(resolve))
  killed.kill('SIGKILL')
  await once(killed, 'exit')
  other.close()

  const ended = [1, 2, 3].map(() => once(start([first, second]), 'exit'))
  t.same(await Promise.all(ended), [[0, null], [0, null], [0, null]])
  const database = openDatabase(file, [first, second])
  t.same(database.prepare<{ x: number }>('SELECT x FROM a').all().map(({ x }) => x), [2, ...Array<number>(10).fill(7)])
  await database.close()
})

t.test('a file of another program is refused by name and left unchanged', async (t) => {
  const place = freshFile(t)
  mkdirSync(dirname(place.file))
  writeFileSync(place.file, 'Dear diary, '.repeat(1000))
  await t.rejects(place.open(), { message: new RegExp(`^The store ${place.file} is damaged or no SQLite file: .+\\.$`) })
  t.ok(readFileSync(place.file, 'utf8').startsWith('Dear diary, '))

  const photos = `${t.testdirName}/photos.db`
  const raw = new DatabaseSync(photos)
  t.teardown(() => raw.close())
  raw.exec('CREATE TABLE photos (name TEXT)')
  chmodSync(photos, 0o644)
  await t.rejects(openStore(`sqlite:${photos}`), { message: new RegExp(`^The store ${photos} holds the data of another program: .+\\.$`) })
  t.same({ ...raw.prepare('PRAGMA journal_mode').get() }, { journal_mode: 'delete' })
  t.equal(statSync(photos).mode & 0o777, 0o644)
})

t.test('a damaged file is refused at the start, or unavailable', async (t) => {
  const place = freshFile(t)
  const store = await place.open()
  await store.change(ID, plan(), T0)
  await Promise.all(Array.from({ length: 200 }, (_, i) => store.mintKey(keyVersion(`k${i}`, 0))))
  await store.close()
  truncateSync(place.file, 8 * 4096)
  const failure: unknown = await place.open().then((opened) => opened.keysAlive('', 1000)).catch((error: unknown) => error)
  t.ok(failure instanceof Unavailable || (failure instanceof Error && failure.message.startsWith(`The store ${place.file} is damaged`)))
})

t.test('a path that cannot be opened is named', async (t) => {
  const dir = t.testdir({ file: 'not a folder', folder: {} })
  for (const path of [`${dir}/file/tollgate.db`, `${dir}/folder`]) {
    await t.rejects(openStore(`sqlite:${path}`), { message: new RegExp(`^The store ${path} cannot be opened: .+\\.$`) })
  }
  await t.rejects(openStore('postgres://root:secret@db'), {
    message: 'STORE_URL has the unknown scheme postgres: it must be sqlite:<file> or mongodb://<host>/<database>.',
  })
})

t.test('a read-only store is neither created nor changed', async (t) => {
  const dir = t.testdir({ 'empty.db': '' })
  const read = (path: string) => openStore(`sqlite:${path}`, { readOnly: true })
  for (const path of [`${dir}/nowhere/tollgate.db`, `${dir}/nothing.db`, `${dir}/empty.db`]) {
    await t.rejects(read(path), { message: new RegExp(`^There is no store at ${path}: .+\\.$`) })
  }
  t.same(readdirSync(dir), ['empty.db'])
  t.equal(statSync(`${dir}/empty.db`).size, 0)

  const file = `${dir}/data/tollgate.db`
  const store = await openStore(`sqlite:${file}`)
  await store.change(ID, plan(), T0)
  const beside = await read(file)
  t.match(await beside.subscription(ID), { id: ID }, 'while it is in use')
  await t.rejects(beside.heartbeat('i1', 1), Unavailable, 'nothing is written')
  await beside.close()
  await store.close()
  const before = readFileSync(file)
  const alone = await read(file)
  t.match(await alone.subscription(ID), { id: ID })
  await alone.close()
  t.same(readdirSync(dirname(file)), ['tollgate.db'])
  t.ok(readFileSync(file).equals(before))
  await openDatabase(`${dir}/older.db`, []).close()
  await t.rejects(read(`${dir}/older.db`), { message: new RegExp(`^The store ${dir}/older.db has the older schema 0: .+\\.$`) })
})

/** Root may write everything, so a read-only file is opened by another user, where that user can read the tree. */
const nobody = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {}
const databaseModule = join(import.meta.dirname, '../../../src/backends/store/sqlite/database.ts')
const isReadable = spawnSync(process.execPath, ['-e', 'fs.accessSync(process.argv[1])', databaseModule], nobody).status === 0

t.test('a read-only copy in a read-only folder can be read', { skip: isReadable ? false : 'only root can read this tree' }, async (t) => {
  const dir = t.testdir({ copy: {} })
  const file = `${dir}/copy/tollgate.db`
  const upgrades = ['CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (7)']
  await openDatabase(file, upgrades).close()
  chmodSync(file, 0o444)
  chmodSync(dirname(file), 0o555)
  const program = `
    const { openToRead } = await import(${JSON.stringify(databaseModule)})
    const database = openToRead(${JSON.stringify(file)}, ${JSON.stringify(upgrades)})
    console.log(JSON.stringify(database.prepare('SELECT x FROM a').all()))
    await database.close()`
  const child = spawnSync(process.execPath, ['--input-type=module', '-e', program], { ...nobody, encoding: 'utf8' })
  chmodSync(dirname(file), 0o755)
  t.equal(child.stdout, '[{"x":7}]\n', child.stderr)
  t.same(readdirSync(dirname(file)), ['tollgate.db'])
})

t.test('the store is unavailable while another process locks the file, and works afterwards', async (t) => {
  const place = freshFile(t)
  const store = await place.open({ retryForMs: 0 })
  await store.change(ID, plan(), T0)
  const other = new DatabaseSync(place.file)
  t.teardown(() => other.close())
  other.exec('BEGIN IMMEDIATE')
  const refused = await Promise.allSettled([store.change(ID, admit('r1', 1), T0), store.heartbeat('i1', 1)])
  for (const outcome of refused) t.equal(outcome.status === 'rejected' && outcome.reason.constructor, Unavailable, 'not one that lasts')
  t.match(await store.subscription(ID), { id: ID }, 'committed data can be read')
  await t.rejects(place.open(), Unavailable)
  other.exec('COMMIT')
  t.match(await store.change(ID, admit('r2', 1), T0), { outcome: 'admitted' })
  t.same(Object.keys((await store.subscription(ID))?.coding?.reservations ?? {}), ['r2'])
  t.same(await store.heartbeats(), [])
})

t.test('a write that violates a constraint fails alone', async (t) => {
  const store = await freshFile(t).open()
  const [one, two, beat] = await Promise.allSettled([
    store.mintKey(keyVersion('k1', 0, { hash: 'the same' })),
    store.mintKey(keyVersion('k2', 0, { hash: 'the same' })),
    store.heartbeat('i1', 1),
  ])
  t.match(one, { status: 'fulfilled', value: { outcome: 'created' } })
  t.match(two, { status: 'rejected', reason: Unavailable })
  t.match(beat, { status: 'fulfilled' })
  t.same((await store.keysAlive('', 10)).map(({ id }) => id), ['k1-0'])
  t.same(await store.heartbeats(), [{ instance: 'i1', count: 1 }])
})

t.test('a write that throws is rolled back alone, and the others of its tick are committed', async (t) => {
  const database = openDatabase(`${t.testdir()}/tollgate.db`, ['CREATE TABLE a (x INTEGER)'])
  t.teardown(() => database.close())
  const insert = database.prepare('INSERT INTO a VALUES (?)')
  const written = await Promise.allSettled([
    database.write(() => insert.run(1)),
    database.write(() => {
      insert.run(2)
      throw new RangeError('half-way')
    }),
    database.write(() => insert.run(3)),
  ])
  t.same(written.map(({ status }) => status), ['fulfilled', 'rejected', 'fulfilled'])
  t.match(written[1], { reason: RangeError })
  t.same(database.prepare<{ x: number }>('SELECT x FROM a').all().map(({ x }) => x), [1, 3])
})
