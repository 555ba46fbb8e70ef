/** Batched commands: each caller gets the outcome of its own document, or `Unavailable` when that is unknown. */
import { randomUUID } from 'node:crypto'
import { Collection, MongoBulkWriteError, MongoClient, MongoNetworkError, type AnyBulkWriteOperation, type Document } from 'mongodb'
import t, { type Test } from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import { batchChanges, batchInserts, batchReads, type Change } from '../../../src/backends/store/mongodb/bulk-commands.ts'
import { openDatabase } from '../../../src/backends/store/mongodb/database.ts'
import { openStore } from '../../../src/backends/store/store.ts'
import type { StoredSubscription } from '../../../src/domain/subscription/stored-subscription.ts'
import { allDue, delivery, hold, mediaPlan, T0, task, taskId } from '../../contracts/store/acme.ts'
import { mongodb } from '../../servers/mongodb.ts'
import { onMongodb, type Empty } from './empty-store.ts'

type Thing = { _id: string; write?: string; n: number; version?: number; name?: string }
type Bulk = Collection['bulkWrite']

/** Wraps every bulk write by `around`. */
function intercept(t: Test, around: (write: () => ReturnType<Bulk>, operations: readonly AnyBulkWriteOperation[]) => ReturnType<Bulk>): void {
  const { bulkWrite } = Collection.prototype
  t.teardown(() => Object.assign(Collection.prototype, { bulkWrite }))
  Collection.prototype.bulkWrite = function (this: Collection, operations, options) {
    return around(() => bulkWrite.call(this, operations, options), operations)
  }
}

/** Documents `a` to `e`, each with its `n` 1. */
async function things({ db }: Empty) {
  const collection = db.collection<Thing>(`things-${randomUUID()}`)
  await collection.insertMany(['a', 'b', 'c', 'd', 'e'].map((_id) => ({ _id, n: 1, version: 1, write: `first of ${_id}`, name: `name of ${_id}` })))
  const swap = batchChanges(collection)
  const raise = (_id: string, from: number, facts: Partial<Thing> = {}): Change => ({ next: { _id, n: from + 1, version: from + 1, write: randomUUID(), ...facts }, last: undefined, when: { version: from }, isWhole: true })
  return { collection, swap, raise }
}

/** The result of each call, or the name of its error. */
async function outcomes(calls: Promise<unknown>[]): Promise<unknown[]> {
  return (await Promise.allSettled(calls)).map((one) => (one.status === 'fulfilled' ? one.value : (one.reason as Error).name))
}

t.test('some swaps of one command take effect and some are lost, and each caller gets its own outcome', onMongodb(async (t, empty) => {
  const { collection, swap, raise } = await things(empty)
  const commands: number[] = []
  intercept(t, (write, operations) => (commands.push(operations.length), write()))
  t.same(await outcomes(['e', 'd', 'c'].map((id) => swap(raise(id, 1)))), ['swapped', 'swapped', 'swapped'])
  t.same(await outcomes([swap(raise('a', 1)), swap(raise('c', 1)), swap(raise('nobody', 1)), swap(raise('b', 1)), swap(raise('d', 2))]), ['swapped', 'lost', 'lost', 'swapped', 'swapped'])
  t.same(await outcomes([swap(raise('c', 1)), swap(raise('d', 1))]), ['lost', 'lost'])
  t.same(await outcomes([swap(raise('e', 2)), swap(raise('e', 2))]), ['swapped', 'lost'], 'two swaps of one document go into two commands')
  t.same(commands, [3, 5, 2, 1, 1])
  t.same((await collection.find().sort({ _id: 1 }).toArray()).map(({ n }) => n), [2, 2, 2, 3, 3])
}))

t.test('swaps of documents whose last write is known are one statement, each with its own outcome', onMongodb(async (t, empty) => {
  const { collection, swap, raise } = await things(empty)
  const statements: number[] = []
  intercept(t, (write, operations) => (statements.push(operations.length), write()))
  const after = (_id: string, last: string | null, facts: Partial<Thing> = {}): Change => ({ ...raise(_id, 1, facts), last, when: {} })
  const first = (_id: string, facts: Partial<Thing> = {}) => after(_id, `first of ${_id}`, facts)
  t.same(await outcomes([swap(first('b')), swap(first('a', { name: '$n' }))]), ['swapped', 'swapped'])
  t.match(await collection.findOne({ _id: 'a' }), { n: 2, name: '$n' })
  t.same(await outcomes([swap(first('c')), swap(first('b')), swap(after('nobody', null)), swap(after('d', null)), swap(after('e', 'another'))]), ['swapped', 'lost', 'lost', 'lost', 'lost'])
  t.same(await outcomes([swap(first('d')), swap(raise('a', 2)), swap(raise('e', 1))]), ['swapped', 'swapped', 'swapped'])
  t.same(statements, [1, 1, 3])
  await collection.updateOne({ _id: 'e' }, { $unset: { write: '' } })
  t.same(await outcomes([swap(after('e', null)), swap(first('d'))]), ['swapped', 'lost'], 'one that an early release wrote')
  t.same((await collection.find().sort({ _id: 1 }).toArray()).map(({ n, name }) => [n, name]), [[3, undefined], [2, undefined], [2, undefined], [2, undefined], [2, undefined]])
}))

t.test('a swap that was overwritten before its outcome was read cannot be distinguished from a lost one: both are unavailable, the others are not', onMongodb(async (t, empty) => {
  const { collection, swap, raise } = await things(empty)
  intercept(t, async (write) => {
    const written = await write()
    await collection.updateOne({ _id: 'b' }, { $set: { write: 'of another process', n: 9, version: 9 } })
    return written
  })
  t.same(await outcomes([swap(raise('a', 1)), swap(raise('b', 1)), swap(raise('c', 7))]), ['swapped', 'Unavailable', 'Unavailable'])
  t.same(await outcomes([swap(raise('b', 9)), swap(raise('d', 1))]), ['swapped', 'swapped'], 'when all took effect, nothing is read')
}))

t.test('a statement refused by the server is unavailable alone; without an answer or a majority, the whole command is', onMongodb(async (t, empty) => {
  const { collection, swap, raise } = await things(empty)
  await collection.createIndex({ name: 1 }, { unique: true })
  const refused: Change = { ...raise('b', 1), when: { version: { $in: 1 } } }
  t.same(await outcomes([swap(raise('a', 1, { name: 'x' })), swap(refused), swap(raise('c', 7, { name: 'y' })), swap(raise('e', 1, { name: 'name of d' }))]), ['swapped', 'Unavailable', 'lost', 'lost'])
  // The driver's error for an answer in which some took effect, but not yet on a majority.
  let failure: 'no majority' | 'no answer' = 'no majority'
  intercept(t, async (write) => {
    const error = (await write().catch((error: unknown) => error)) as MongoBulkWriteError
    if (failure === 'no answer') throw new MongoNetworkError('the connection was lost')
    throw Object.assign(error, { result: Object.assign(error.result, { getWriteConcernError: () => ({ code: 64 }) }) })
  })
  const both = () => outcomes([swap(raise('c', 1, { name: 'c' })), swap(raise('d', 1, { name: 'name of e' }))])
  t.same(await both(), ['MongoBulkWriteError', 'MongoBulkWriteError'])
  failure = 'no answer'
  t.same(await both(), ['MongoNetworkError', 'MongoNetworkError'])
}))

t.test('a swap that took effect before its statement failed, as a mongod keeps it, is swapped: it does not match when it is sent again', async (t) => {
  const writes = new Map(['a', 'b'].map((id) => [id, `first of ${id}`]))
  const commands: number[] = []
  /** Every change of `b` would have a unique value of another document. */
  const bulkWrite = async (operations: AnyBulkWriteOperation[]) => {
    commands.push(operations.length)
    const refused = new MongoBulkWriteError({ message: 'duplicate', code: 11000, writeErrors: [] }, {} as never)
    const writeErrors: Document[] = []
    let matchedCount = 0
    for (const [index, operation] of (operations as Document[]).entries()) {
      const { filter } = operation['updateMany'] ?? operation['updateOne']
      const among = (one: { $in?: unknown[] }) => one.$in ?? [one]
      const matching = among(filter._id).filter((id) => among(filter.write).includes(writes.get(String(id))))
      if (matching.includes('a')) writes.set('a', 'second of a')
      if (matching.includes('b')) writeErrors.push({ index, code: 11000 })
      else matchedCount += matching.length
    }
    if (writeErrors.length === 0) return { matchedCount }
    const result = { hasWriteErrors: () => true, getWriteConcernError: () => undefined, getWriteErrors: () => writeErrors, matchedCount }
    throw Object.assign(refused, { result })
  }
  const find = () => ({ toArray: async () => [...writes].map(([_id, write]) => ({ _id, write })) })
  const change = batchChanges({ bulkWrite, find } as unknown as Collection<Thing>)
  const changed = (_id: string) => change({ next: { _id, write: `second of ${_id}` }, last: `first of ${_id}`, when: {} })
  t.same(await outcomes([changed('a'), changed('b')]), ['swapped', 'lost'])
  t.same(commands, [1, 2], 'one statement, and each alone')
})

t.test('a command inserts those of its documents whose ids and unique values are free', onMongodb(async (t, empty) => {
  const { collection } = await things(empty)
  await collection.createIndex({ name: 1 }, { unique: true })
  const insert = batchInserts(collection, ({ name = '' }) => name, () => 1)
  const calls = [insert({ _id: 'f', n: 1, name: 'new' }), insert({ _id: 'a', n: 1, name: 'other' }), insert({ _id: 'g', n: 1, name: 'new' }), insert({ _id: 'h', n: 1, name: 'last' }), insert({ _id: 'h', n: 2, name: 'twice' })]
  t.same(await outcomes(calls), ['added', 'taken', 'taken', 'added', 'taken'])
  const read = batchReads(collection, '_id')
  t.match(await Promise.all(['a', 'f', 'h', 'z', 'a'].map(read)), [{ name: 'name of a' }, { name: 'new' }, { n: 1 }, null, { name: 'name of a' }])
}))

t.test('every process sends whole documents before members, in the order of their ids, whichever it changes first', onMongodb(async (t, empty) => {
  const { swap, raise } = await things(empty)
  const commands: unknown[] = []
  intercept(t, (write, operations) => (commands.push(operations.map((one) => [Object.keys(one)[0], Object.values(one)[0].filter._id])), write()))
  const members = (id: string): Change => ({ ...raise(id, 1), isWhole: false })
  t.same(await outcomes([swap(raise('e', 1)), swap(members('c')), swap(raise('a', 1))]), ['swapped', 'swapped', 'swapped'])
  t.same(commands, [[['replaceOne', 'a'], ['replaceOne', 'e'], ['updateOne', 'c']]])
}))

t.test('two processes that move the same tasks in opposite orders do not deadlock, and move each once', onMongodb(async (t, empty) => {
  const place = await empty.place(t)
  const [one, other] = [await place.open(), await place.open()]
  const COUNT = 120
  await Promise.all(Array.from({ length: COUNT }, (_, n) => one.createTask(task(n))))
  for (const [from, to] of [['pending', 'queued'], ['queued', 'processing'], ['processing', 'settling']] as const) {
    const moved = async (store: typeof one, ns: number[]) =>
      Promise.all(ns.map((n) => store.moveTask(taskId(n), { from: [from] }, to, { epoch: n }).catch((error: unknown) => (error instanceof Unavailable ? 'unknown' : Promise.reject(error)))))
    const order = Array.from({ length: COUNT }, (_, n) => n)
    const [mine, theirs] = await Promise.all([moved(one, order), moved(other, order.toReversed())])
    for (const n of order) {
      const both = [mine[n], theirs[COUNT - 1 - n]]
      if (both.includes('unknown')) continue
      t.equal(both.filter((answer) => answer !== null).length, 1, `task ${n} became ${to} once`)
    }
    const known = [...mine, ...theirs].filter((answer) => answer !== 'unknown').length
    t.ok(known > COUNT, `${known} of ${2 * COUNT} got an outcome`)
    t.ok((await Promise.all(order.map((n) => one.task('acme', taskId(n))))).every((after) => after?.state === to))
  }
}))

t.test('two processes that create the same task at once create one, and both succeed', onMongodb(async (t, empty) => {
  const place = await empty.place(t)
  const stores = await Promise.all([1, 2].map(() => place.open()))
  // Over PostgreSQL, about one in five causes a deadlock.
  for (let n = 0; n < 30; n++) {
    const idempotency = { key: `order-${n}`, bodyHash: 'h' }
    const answers = await Promise.all(stores.map((store, i) => store.createTask(task(2 * n + i, { idempotency }))))
    t.same(answers.map(({ outcome }) => outcome).toSorted(), ['created', 'existing'])
    t.equal(new Set(answers.map(({ task }) => task.id)).size, 1)
  }
}))

t.test('a cached task that another process changed is read again before a refusal, and returned as it is', onMongodb(async (t, { db, place }) => {
  const { open } = await place(t)
  const [one, other] = [await open(), await open()]
  await one.createTask(task(1))
  await other.moveTask(taskId(1), { from: ['pending'] }, 'queued', { sweepAt: null })
  t.match(await one.moveTask(taskId(1), { from: ['pending', 'queued'] }, 'processing', { epoch: 4, attempts: 1 }), { state: 'processing', sweepAt: null, epoch: 4 })
  t.equal(await other.renewTask(taskId(1), 4, 30, T0 + 5), 'ok')
  t.match(await one.moveTask(taskId(1), { from: ['processing'], epoch: 4 }, 'queued', {}), { state: 'queued', progress: 30, sweepAt: T0 + 5 })
  t.equal(await other.moveTask(taskId(1), { from: ['processing'] }, 'settling', {}), null)
  // A task written before documents had `write`.
  await db.collection<Document & { _id: string }>('tasks').updateOne({ _id: taskId(1) }, { $unset: { write: '' } })
  const third = await open()
  const fourth = await open()
  t.match(await third.task('acme', taskId(1)), { state: 'queued' })
  t.match(await fourth.moveTask(taskId(1), { from: ['queued'] }, 'processing', { epoch: 5 }), { state: 'processing' })
  t.equal(await third.moveTask(taskId(1), { from: ['queued'] }, 'processing', { epoch: 5 }), null)
}))

t.test('a task that is removed while several are relayed keeps no deliveries, and the others do', onMongodb(async (t, { place }) => {
  const store = await (await place(t)).open()
  const { bulkWrite } = Collection.prototype
  t.teardown(() => Object.assign(Collection.prototype, { bulkWrite }))
  const ns = [1, 2, 3]
  await Promise.all(ns.map((n) => store.createTask(task(n, { state: 'completed', outbox: [{ event: 'task.completed', body: '{}' }], sweepAt: T0 }))))
  Collection.prototype.bulkWrite = async function (this: Collection, ...command: Parameters<Collection['bulkWrite']>) {
    if (this.collectionName === 'tasks') await this.deleteOne({ _id: taskId(2) } as Document)
    return bulkWrite.apply(this, command)
  } as typeof bulkWrite
  await Promise.all(ns.map((n) => store.relay(taskId(n), [delivery(n)], [])))
  t.same(await Promise.all(ns.map(async (n) => (await store.deliveries(taskId(n))).length)), [1, 0, 1])
  t.match(await Promise.all(ns.map((n) => store.task('acme', taskId(n)))), [{ outbox: [], sweepAt: null }, null, { outbox: [], sweepAt: null }])
  t.same(await allDue(store, T0), [])
}))

t.test('records of several plans share a command; large ones are limited by bytes where they are sent whole', onMongodb(async (t, found) => {
  const store = await openStore(found.url)
  t.teardown(() => store.close())
  const ids = Array.from({ length: 12 }, (_, n) => `acme/plan-${n}`)
  await Promise.all(ids.map((id) => store.change(id, mediaPlan(), T0)))
  const commands: number[] = []
  const countOf = (operation: Document) => operation['updateMany']?.filter._id.$in.length ?? 1
  intercept(t, (write, operations) => (commands.push(operations.map(countOf).reduce((sum, count) => sum + count, 0)), write()))
  await Promise.all(ids.map((id) => store.change(id, hold(taskId(1)), T0)))
  // As many as one read brings, or more where a write waits for the one before it.
  t.ok(Math.max(...commands) >= 8, `${commands} records a command`)
  const records = found.db.collection<StoredSubscription & { _id: string }>('subscriptions')
  for (const id of ids) {
    const { media } = (await records.findOne({ _id: id }))!
    const held = Object.values(media!.holds)[0]!
    // As an early release wrote it.
    await records.updateOne({ _id: id }, { $set: { 'media.holds': Object.fromEntries(Array.from({ length: 1900 }, (_, n) => [taskId(n), held])) }, $unset: { write: '' } })
  }
  commands.length = 0
  await Promise.all(ids.map((id) => store.change(id, hold(taskId(2000)), T0)))
  t.same(commands.reduce((sum, count) => sum + count, 0), 12)
  t.ok(Math.max(...commands) <= 5, `${commands.join(', ')} at once`)
  for (const record of await Promise.all(ids.map((id) => store.subscription(id)))) t.equal(record?.media?.holds.count, 1901)
}))

t.test('a verb that the driver never settles is unavailable, and does not block closing', async (t) => {
  const server = await mongodb(t)
  if (!server) return
  const client = await new MongoClient(server).connect()
  const database = openDatabase(client, 'nothing', 1)
  const failure = database.run(() => new Promise(() => {})).catch((error: unknown) => error)
  let isSettled = false
  void failure.then(() => (isSettled = true))
  while (!isSettled) await new Promise((resolve) => setImmediate(resolve))
  t.match(await failure, { name: 'Unavailable', cause: { message: 'no answer within 1 ms' } })
  await database.close()
})
