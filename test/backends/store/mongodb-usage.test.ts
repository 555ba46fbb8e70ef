/** Usage records between the plan's document and their own, where a process ends in between. */
import { Collection, MongoNetworkError } from 'mongodb'
import t, { type Test } from 'tap'
import type { Store } from '../../../src/backends/store/store.ts'
import { admit, ID, plan, settle, T0 } from '../../contracts/store/acme.ts'
import { onMongodb } from './empty-store.ts'

const ALL = { since: 0, until: Infinity }

async function charge(store: Store, id: string, at: number): Promise<void> {
  await store.change(ID, admit(id, 5), at)
  await store.change(ID, settle(id, 5), at)
}

/** A process ends before each insert of usage records, until the returned function is called. */
function dyingWriters(t: Test): () => void {
  const { bulkWrite } = Collection.prototype
  const revive = () => Object.assign(Collection.prototype, { bulkWrite })
  t.teardown(revive)
  Collection.prototype.bulkWrite = async function (this: Collection, ...values) {
    if (this.collectionName === 'usage_records') throw new MongoNetworkError('the process has ended')
    return bulkWrite.apply(this, values)
  }
  return revive
}

t.test('usage records of a process that ended before it inserted them are listed, kept by others, and stored by the sweep', onMongodb(async (t, empty) => {
  const place = await empty.place(t)
  const revive = dyingWriters(t)
  const dead = await place.open({ recordsUsage: true, publishesUsage: true })
  await dead.change(ID, plan(), T0)
  for (const id of ['a', 'b']) await charge(dead, id, T0 + 1)
  await dead.close()
  revive()
  const other = await place.open({ recordsUsage: true, publishesUsage: true })
  const listed = async () => (await other.usageRecords(ID, ALL, null, 10)).map(({ id }) => id)
  t.same(await listed(), ['a', 'b'], 'they are in the document of the plan')
  t.same(await other.unpublishedUsage(10), [])
  await charge(other, 'c', T0 + 2)
  t.same(await listed(), ['a', 'b', 'c'], 'the next write of the document keeps them')
  t.equal(await other.storeOutboxes(T0 + 2, 10), 0, 'a plan that is in use has time')
  t.equal(await other.storeOutboxes(T0 + 3, 10), 1)
  t.equal(await other.storeOutboxes(T0 + 3, 10), 0)
  t.same((await other.unpublishedUsage(10)).map(({ id }) => id).toSorted(), ['a', 'b', 'c'])
  t.same([await listed(), (await other.subscription(ID))?.coding?.weekly.used], [['a', 'b', 'c'], 15])
}))

t.test('a plan that is always in use does not keep what another process left', onMongodb(async (t, empty) => {
  const place = await empty.place(t)
  const dead = await place.open({ recordsUsage: true })
  await dead.change(ID, plan(), T0)
  const revive = dyingWriters(t)
  await charge(dead, 'a', T0)
  await dead.close()
  revive()
  const other = await place.open({ recordsUsage: true, storesUsageOfOthers: true })
  const outbox = async () => (await other.subscription(ID))?.outbox?.map(({ id }) => id) ?? []
  await charge(other, 'b', T0 + 5_000)
  t.ok((await outbox()).includes('a'))
  for (let n = 0; (await outbox()).includes('a'); n++) await charge(other, `c${n}`, T0 + 10_001 + n)
  t.ok((await other.usageRecords(ID, ALL, null, 1000)).some(({ id }) => id === 'a'))
}))

t.test('a process that is no gateway and no worker leaves usage records of others to those who publish them', onMongodb(async (t, empty) => {
  const place = await empty.place(t)
  const revive = dyingWriters(t)
  const gateway = { recordsUsage: true, publishesUsage: true, storesUsageOfOthers: true }
  const dead = await place.open(gateway)
  await dead.change(ID, plan(), T0)
  const wanted = Array.from({ length: 70 }, (_none, n) => `r${n}`)
  for (const id of wanted) await charge(dead, id, T0)
  await dead.close()
  revive()
  const command = await place.open()
  for (let n = 0; n < 3; n++) await command.change(ID, admit(`later-${n}`, 5), T0 + 20_000 + n)
  await command.close()
  const other = await place.open(gateway)
  t.equal((await other.subscription(ID))?.outbox?.length, 70, 'old and many, and still there')
  t.equal(await other.storeOutboxes(T0 + 60_000, 10), 1)
  t.same((await other.unpublishedUsage(100)).map(({ id }) => id).toSorted(), wanted.toSorted())
}))

t.test('many usage records are inserted by one command, of which one fails alone', onMongodb(async (t, empty) => {
  const place = await empty.place(t)
  const { bulkWrite } = Collection.prototype
  t.teardown(() => Object.assign(Collection.prototype, { bulkWrite }))
  const sizes: number[] = []
  Collection.prototype.bulkWrite = async function (this: Collection, operations, options) {
    if (this.collectionName !== 'usage_records') return bulkWrite.call(this, operations, options)
    sizes.push(operations.length)
    // No server takes an array as an id.
    const refused = operations.map((one) => ('insertOne' in one && String(one.insertOne.document['_id']) === 'bad' ? { insertOne: { document: { _id: [] as never } } } : one))
    return bulkWrite.call(this, refused, options)
  }
  const store = await place.open({ recordsUsage: true, publishesUsage: true })
  await store.change(ID, plan(), T0)
  const ids = ['bad', ...Array.from({ length: 99 }, (_none, n) => `r${n}`)]
  await Promise.all(ids.map((id) => store.change(ID, admit(id, 5), T0)))
  await Promise.all(ids.map((id) => store.change(ID, settle(id, 5), T0 + 1)))
  while ((await store.unpublishedUsage(100)).length < 99) await store.clock()
  let outbox: string[] | undefined
  for (let n = 0; n < 20 && (outbox === undefined || outbox.some((id) => id.startsWith('r'))); n++) {
    await charge(store, `later-${n}`, T0 + 2)
    outbox = (await store.subscription(ID))?.outbox?.map(({ id }) => id)
  }
  t.ok(Math.max(...sizes) > 32, `${sizes}`)
  t.notOk(outbox?.some((id) => id.startsWith('r')), 'those that were stored are known to be')
  t.ok(outbox?.includes('bad'))
}))

t.test('a plan whose usage records cannot be stored has a bounded number of them, and loses none', onMongodb(async (t, empty) => {
  const place = await empty.place(t)
  const { bulkWrite } = Collection.prototype
  t.teardown(() => Object.assign(Collection.prototype, { bulkWrite }))
  const { promise: isFree, resolve: free } = Promise.withResolvers<void>()
  let most = 0
  Collection.prototype.bulkWrite = async function (this: Collection, ...values) {
    if (this.collectionName === 'usage_records') await isFree
    const [operations] = values as unknown as [{ replaceOne?: { replacement: { outbox?: unknown[] } } }[]]
    for (const { replaceOne } of operations) most = Math.max(most, replaceOne?.replacement.outbox?.length ?? 0)
    return bulkWrite.apply(this, values)
  }
  const store = await place.open({ recordsUsage: true })
  await store.change(ID, plan(), T0)
  const wanted = Array.from({ length: 1_200 }, (_none, n) => `r${n}`)
  const charges = Array.from({ length: 8 }, async (_none, client) => {
    for (let n = client; n < wanted.length; n += 8) await charge(store, wanted[n]!, T0 + n)
  })
  // Until the writes of the plan wait, it has as many as it may.
  while (most <= 500) await new Promise((resolve) => setImmediate(resolve))
  // Time in which further writes would be made.
  for (let n = 0; n < 100; n++) await store.clock()
  free()
  await Promise.all(charges)
  t.ok(most <= 520, `at most ${most}`)
  t.same((await store.usageRecords(ID, ALL, null, 2_000)).map(({ id }) => id).toSorted(), wanted.toSorted())
  t.equal((await store.subscription(ID))?.coding?.weekly.used, 6_000)
}))
