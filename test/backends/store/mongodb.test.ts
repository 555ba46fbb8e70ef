import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { Collection, type Db, type Document } from 'mongodb'
import t, { type Test } from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import { bringUpToDate, type Upgrade } from '../../../src/backends/store/mongodb/migrations.ts'
import { openStore } from '../../../src/backends/store/store.ts'
import { allDue, delivery, ID, mediaPlan, plan, T0, task } from '../../contracts/store/acme.ts'
import { mongodb } from '../../servers/mongodb.ts'
import { freePort } from '../../servers/process.ts'
import { emptyDatabase, onMongodb } from './empty-store.ts'

t.test('several programs open a store at once, and one opens an existing store', onMongodb(async (t, { url, db }) => {
  const stores = await Promise.all(Array.from({ length: 4 }, () => openStore(url)))
  t.teardown(() => Promise.all(stores.map((store) => store.close())))
  const indexes = async () =>
    (await Promise.all((await db.collections()).map(async (one) => (await one.indexes()).map(({ name }) => `${one.collectionName} ${name}`)))).flat().toSorted()
  const made = await indexes()
  t.ok(made.length > 20)
  await stores[0]?.change(ID, plan(), T0)
  const later = await openStore(url)
  t.match(await later.subscription(ID), { id: ID })
  await later.close()
  t.same(await indexes(), made)
  t.same(await db.collection('meta').find().toArray(), [{ _id: 'schema', version: 2 }])
}))

t.test('documents keep the names that processes of the earlier release read and write', onMongodb(async (t, { url, db }) => {
  const store = await openStore(url)
  t.teardown(() => store.close())
  const price = { kind: 'image', micro: 40_000, per: 'Job' } as const
  await store.createTask(task(1, { price }))
  await store.change('acme/studio', mediaPlan({ prices: [price] }), T0)
  const { kind, ...rest } = price
  t.match(await db.collection('tasks').findOne(), { verb: kind, price: { verb: kind, ...rest } })
  t.match(await db.collection('subscriptions').findOne(), { terms: { media: { prices: [{ verb: kind, ...rest }] } } })
  t.match(await store.task('acme', task(1).id), { kind, price })
  const other = await openStore(url)
  t.teardown(() => other.close())
  t.match(await other.subscription('acme/studio'), { terms: { media: { prices: [price] } } })
}))

t.test('a read-only store is neither created nor upgraded', async (t) => {
  const server = await mongodb(t)
  if (!server) return
  const { url, db } = await emptyDatabase(t, server)
  await t.rejects(openStore(url, { readOnly: true }), { message: /^There is no store at .*: STORE_URL names another server or database\.$/ })
  t.same(await db.collections(), [])
  const store = await openStore(url)
  await store.change(ID, plan(), T0)
  await store.close()
  const reader = await openStore(url, { readOnly: true })
  t.match(await reader.subscription(ID), { id: ID })
  await reader.close()
  const meta = db.collection<{ _id: string; version: number }>('meta')
  await meta.updateOne({ _id: 'schema' }, { $set: { version: 1 } })
  await t.rejects(openStore(url, { readOnly: true }), { message: /has the older schema 1: start this Tollgate on it once/ })
  await meta.updateOne({ _id: 'schema' }, { $set: { version: 99 } })
  await t.rejects(openStore(url, { readOnly: true }), { message: /has schema 99 and this Tollgate supports none newer/ })
  t.same((await meta.findOne({ _id: 'schema' }))?.version, 99)
})

t.test('a newer schema is refused and left unchanged', onMongodb(async (t, { url, db }) => {
  await (await openStore(url)).close()
  await db.collection<{ _id: string }>('meta').updateOne({ _id: 'schema' }, { $set: { version: 1000 } })
  const place = url.replace('mongodb://', '')
  await t.rejects(openStore(url), { message: `The store ${place} has schema 1000 and this Tollgate supports none newer than 2: start the newer Tollgate, or restore a backup from before its upgrade.` })
  t.same(await db.collection('meta').find().toArray(), [{ _id: 'schema', version: 1000 }])
}))

t.test('a document in a format of a newer version is refused and left unchanged, and those beside it are served', onMongodb(async (t, { url, db }) => {
  const store = await openStore(url, { retryForMs: 0 })
  t.teardown(() => store.close())
  await Promise.all([ID, 'acme/other'].map((id) => store.change(id, plan(), T0)))
  await Promise.all([1, 2, 3].map((n) => store.createTask(task(n))))
  const earlier = { nextAttemptAt: T0 - 1 }
  const waiting = { state: 'waiting', nextAttemptAt: null } as const
  const refused = [delivery(4, { ...earlier, tenant: 'aaa' }), delivery(5, earlier), delivery(6, waiting)]
  await store.relay(task(3).id, [...refused, delivery(7), delivery(8, waiting)], [])
  const names = ['subscriptions', 'tasks', 'deliveries']
  for (const name of names) {
    const newer = { $set: { format: 2, write: 'newer' }, ...(name === 'subscriptions' && { $inc: { version: 1 } }) }
    await db.collection<{ _id: string }>(name).updateMany({ _id: { $in: [ID, task(1).id, ...refused.map(({ id }) => id)] } }, newer)
  }
  const documents = async () => Promise.all(names.map((name) => db.collection(name).find({ format: 2 }).sort({ _id: 1 }).toArray()))
  const before = await documents()
  const refusal = (id: string) => ({ name: 'Busy', cause: { message: `${id} has format 2 and this Tollgate supports none newer than 1: replace this process by the newer Tollgate` } })
  const both = await Promise.allSettled([ID, 'acme/other'].map((id) => store.subscription(id)))
  t.match(both, [{ status: 'rejected', reason: refusal(ID) }, { status: 'fulfilled', value: { id: 'acme/other' } }])
  await t.rejects(store.change(ID, plan(), T0), refusal(ID))
  t.match(await store.change('acme/other', plan(), T0), { outcome: 'applied' })
  await t.rejects(store.task('acme', task(1).id), refusal(task(1).id))
  await t.rejects(store.moveTask(task(1).id, { from: [task(1).state] }, 'canceled', {}), refusal(task(1).id))
  t.match(await store.task('acme', task(2).id), { id: task(2).id })
  const other = await openStore(url)
  t.teardown(() => other.close())
  await t.rejects(other.task('acme', task(1).id), refusal(task(1).id))
  await t.rejects(other.moveTask(task(1).id, { from: [task(1).state] }, 'canceled', {}), refusal(task(1).id), 'a read does not cache it')
  const ids = (found: { id: string }[]) => found.map(({ id }) => id)
  const states = [task(1).state]
  t.same(ids((await store.tasksDue(T0 + 60_000, [{ states, after: '', limit: 1, perTenant: 1 }])).flat()), [task(2).id])
  t.same(ids(await allDue(store, T0 + 60_000)), [task(2).id])
  t.same(ids(await store.subscriptionsWith('plan', '', 1)), ['acme/other'])
  t.same(ids(await store.claimDeliveries(T0, T0 + 1000, { limit: 1, perHost: 9, perTenant: 9, perQueue: 9 })), [delivery(7).id])
  t.same(await documents(), before)
}))

/** Two migrations: a member is split in two, then the old one is removed. */
const MIGRATIONS: Upgrade[] = [
  async (db) => void (await db.collection('beats').updateMany({ first: { $exists: false } }, [{ $set: { first: '$count', last: '$count' } }])),
  async (db) => void (await db.collection('beats').updateMany({ count: { $exists: true } }, { $unset: { count: '' } })),
]
const AFTER = [{ _id: 'i1', first: 1, last: 1 }, { _id: 'i2', first: 2, last: 2 }]

/** A store of the first schema. */
async function oldStore(url: string, db: Db): Promise<void> {
  const old = await openStore(url)
  await old.heartbeat('i1', 1)
  await old.heartbeat('i2', 2)
  await old.close()
  await db.collection('meta').updateOne({}, { $set: { version: 1 } })
}

const state = async (db: Db) => ({ schema: (await db.collection('meta').findOne())?.['version'], beats: await db.collection('beats').find().sort({ _id: 1 }).toArray() })

t.test('each migration is applied to an older store, and none to an empty one', async (t) => {
  const server = await mongodb(t)
  if (!server) return
  const { url, db } = await emptyDatabase(t, server)
  await oldStore(url, db)
  await bringUpToDate(db, MIGRATIONS.slice(0, 1), 'here')
  t.match(await state(db), { schema: 2, beats: [{ count: 1, first: 1 }, { count: 2, first: 2 }] })
  await bringUpToDate(db, MIGRATIONS, 'here')
  await bringUpToDate(db, MIGRATIONS, 'here')
  t.same(await state(db), { schema: 3, beats: AFTER })
  await t.rejects(openStore(url), /has schema 3 and this Tollgate supports none newer than 2/)

  const fresh = await emptyDatabase(t, server)
  const never: Upgrade = () => Promise.reject(new Error('there is nothing to upgrade'))
  await bringUpToDate(fresh.db, [never, never], 'here')
  t.same(await state(fresh.db), { schema: 3, beats: [] })
})

t.test('an interrupted migration is completed by the next start, also when several start at once', onMongodb(async (t, { url, db }) => {
  await oldStore(url, db)
  const killed: Upgrade = async (db) => {
    await db.collection<{ _id: string }>('beats').updateOne({ _id: 'i1' }, { $set: { first: 1, last: 1 } })
    throw new Error('killed')
  }
  await t.rejects(bringUpToDate(db, [killed, MIGRATIONS[1]!], 'here'), /killed/)
  t.match(await state(db), { schema: 1 }, 'an incomplete migration is not recorded')
  await Promise.all(Array.from({ length: 5 }, () => bringUpToDate(db, MIGRATIONS, 'here')))
  t.same(await state(db), { schema: 3, beats: AFTER })
  await MIGRATIONS[0]?.(db)
  await MIGRATIONS[1]?.(db)
  t.same(await state(db), { schema: 3, beats: AFTER }, 'a late process repeats its migrations without effect')
}))

t.test('a server that is not up yet is unavailable, and the store opens once it is', onMongodb(async (t, { url }) => {
  const away = new URL(url)
  away.port = String(await freePort())
  await t.rejects(openStore(away.href), Unavailable)
  await t.rejects(openStore('mongodb://no-such-host.invalid/'), Unavailable)
  const store = await openStore(url)
  t.ok(await store.clock())
  await store.close()
}))

t.test('an invalid address is refused in a sentence without the password', async (t) => {
  for (const url of ['mongodb://', 'mongodb://:secret@/x', 'mongodb://user:secr@et@db/x', 'mongodb://user:secret@db/a.b', 'mongodb://user:secret@db/%zz', 'mongodb://user:secret@db/x?colour=red']) {
    const failure = await openStore(url).then((store) => store.close(), (error: unknown) => error)
    t.ok(failure instanceof Error && !(failure instanceof Unavailable), url)
    t.match(failure, { message: /^STORE_URL is not a valid MongoDB address: .+\.$/ })
    t.notMatch(failure, { message: /secr/ })
  }
})

t.test('a delivery that another process has claimed since it was read ahead is not claimed again, and no other is passed over', onMongodb(async (t, { place }) => {
  const all = await place(t)
  const stores = [await all.open(), await all.open()]
  const made = Array.from({ length: 12 }, (_, n) => n + 1)
  for (const n of made) await stores[0]!.createTask(task(n))
  for (const n of made) await stores[0]!.relay(task(n).id, [delivery(n)], [])
  const claimed: string[] = []
  // They became due at once, so that the time of their queue does not tell one process what the other has claimed.
  for (const turn of [0, 0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1])
    for (const { id } of await stores[turn]!.claimDeliveries(T0, T0 + 1000, { limit: 1, perHost: 99, perTenant: 99, perQueue: 99 })) claimed.push(id)
  t.same(claimed.toSorted(), made.map((n) => delivery(n).id).toSorted())
}))

t.test('concurrent processes on one record are exact: none reserves past the limit, and each use is charged', onMongodb(async (t, { url }) => {
  const store = await openStore(url)
  t.teardown(() => store.close())
  await store.change(ID, plan({}, { sessionTokens: 5_000, maxConcurrentRequests: 40 }), T0)
  const program = `
    const { openStore } = await import(${JSON.stringify(new URL('../../../src/backends/store/store.ts', import.meta.url).href)})
    const { admit, settle, ID, T0, task, taskId } = await import(${JSON.stringify(new URL('../../contracts/store/acme.ts', import.meta.url).href)})
    const [name, url] = process.argv.slice(1)
    const store = await openStore(url)
    const counts = { admitted: 0, charged: 0, most: 0, created: 0 }
    // On a busy machine, one of a hundred may time out waiting for a connection: then it is repeated.
    const retrying = (work) => work().catch((error) => (error.name === 'Unavailable' || error.name === 'Busy' ? retrying(work) : Promise.reject(error)))
    await Promise.all(Array.from({ length: 100 }, async (_, i) => {
      const answer = await retrying(() => store.change(ID, admit(name + i, 90), T0))
      const { reservations, session } = (await retrying(() => store.subscription(ID))).coding
      counts.most = Math.max(counts.most, session.used + Object.values(reservations).reduce((sum, { tokens }) => sum + tokens, 0))
      if (answer.outcome === 'admitted') {
        counts.admitted++
        counts.charged += 70
        const settled = () => retrying(() => store.change(ID, settle(name + i, 70), T0))
        await Promise.all([settled(), settled()])
      }
      const one = task(0, { id: taskId(i, T0 + name.charCodeAt(0)), idempotency: { key: 'order-' + i, bodyHash: 'h' } })
      if ((await retrying(() => store.createTask(one))).outcome === 'created') counts.created++
    }))
    await store.close()
    console.log(JSON.stringify(counts))
  `
  const counts = await Promise.all(
    ['a', 'b', 'c'].map(async (name) => {
      const child = spawn(process.execPath, ['--input-type=module', '-e', program, name, url], { stdio: ['ignore', 'pipe', 'inherit'] })
      const [text] = await Promise.all([child.stdout.toArray(), once(child, 'exit')])
      return JSON.parse(Buffer.concat(text).toString()) as { admitted: number; charged: number; most: number; created: number }
    }),
  )
  const sum = (what: 'admitted' | 'charged' | 'created') => counts.reduce((all, one) => all + one[what], 0)
  t.ok(counts.every(({ most }) => most <= 5_000), JSON.stringify(counts))
  t.ok(sum('admitted') >= 40 && sum('admitted') < 300, `${sum('admitted')} of 300 were admitted`)
  t.match((await store.subscription(ID))?.coding, { session: { used: sum('charged') }, reservations: {} })
  t.equal(sum('created'), 100, 'each Idempotency-Key made one task')
  t.match(await store.taskWithKey('acme', 'order-7'), { kind: task(0).kind })
}))

/** Serves the reads of tasks one by one, those under way together last first, and makes a change after the `n`th until the test ends. */
function changeAfterRead(t: Test, n: number, change: () => Promise<unknown>): void {
  const { find } = Collection.prototype
  t.teardown(() => Object.assign(Collection.prototype, { find }))
  let served = Promise.resolve()
  let asked: (() => Promise<void>)[] = []
  let count = 0
  Collection.prototype.find = function (this: Collection, ...query: Parameters<Collection['find']>) {
    const cursor = find.apply(this, query)
    if (this.collectionName !== 'tasks') return cursor
    const { promise, resolve } = Promise.withResolvers<Document[]>()
    const toArray = cursor.toArray.bind(cursor)
    asked.unshift(async () => {
      const found = await toArray()
      if (++count === n) await change()
      resolve(found)
    })
    setImmediate(() => {
      const together = asked
      asked = []
      for (const serve of together) served = served.then(serve)
    })
    return Object.assign(cursor, { toArray: () => promise })
  } as typeof find
}

t.test('a task that moves on while a list is read is in the list, once', onMongodb(async (t, { db, place }) => {
  const all = { object: 'generation', kind: null, status: null, createdAfter: null, createdBefore: null } as const
  const running = { state: 'processing', startedAt: T0 } as const
  const retrying = { state: 'queued', startedAt: T0 } as const
  const moves = [[null, running, { state: 'completed', endedAt: T0 }], ['processing', running, retrying], ['processing', retrying, running]] as const
  for (const [status, before, after] of moves) {
    for (const n of [1, 2, 3]) {
      await t.test(`${status}: from ${before.state} to ${after.state} after read ${n}`, async (t) => {
        const store = await (await place(t)).open()
        await store.createTask(task(1, before))
        changeAfterRead(t, n, () => db.collection('tasks').updateOne({}, { $set: after }))
        t.same((await store.tasks('acme', { ...all, status }, null, 10)).map(({ id }) => id), [task(1).id])
      })
    }
  }
}))
