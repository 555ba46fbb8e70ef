/** Writes to the event log of MongoDB that land late: none of them lands behind a reader. */
import { Collection } from 'mongodb'
import t, { type Test } from 'tap'
import type { Store } from '../../../src/backends/store/store.ts'
import { logged, T0, task, taskId } from '../../contracts/store/acme.ts'
import { onMongodb, type Empty } from './empty-store.ts'

/** Holds the next append back before it is sent, until `land`; resolves when it is held. */
function holdAppend(): { held: Promise<void>; land(): void } {
  const real = Collection.prototype.bulkWrite
  const [held, landed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  Collection.prototype.bulkWrite = async function (this: Collection, ...command: Parameters<Collection['bulkWrite']>) {
    if (this.collectionName !== 'events') return real.apply(this, command)
    Collection.prototype.bulkWrite = real
    held.resolve()
    await landed.promise
    return real.apply(this, command)
  } as typeof real
  return { held: held.promise, land: () => landed.resolve() }
}

/** Counts the reads of a collection until the test ends. */
function countReads(t: Test, name: string): () => number {
  const { find } = Collection.prototype
  t.teardown(() => Object.assign(Collection.prototype, { find }))
  let count = 0
  Collection.prototype.find = function (this: Collection, ...query: Parameters<Collection['find']>) {
    if (this.collectionName === name) count++
    return find.apply(this, query)
  } as typeof find
  return () => count
}

async function relay(store: Store, n: number, events = [logged(n)]): Promise<void> {
  await store.createTask(task(n, { state: 'completed', tenant: events[0]?.tenant ?? 'acme' }))
  await store.relay(taskId(n), [], events)
}

const read = (store: Store, after: number, tenant = 'acme') => store.events(tenant, after, 0, 100)

async function opened(t: Test, empty: Empty): Promise<[Store, Store]> {
  const place = await empty.place(t)
  return [await place.open(), await place.open()]
}

t.test('an append that lands late takes a position after all that readers saw', onMongodb(async (t, empty) => {
  const [slow, quick] = await opened(t, empty)
  await relay(quick, 1)
  const { held, land } = holdAppend()
  const late = relay(slow, 2, [logged(2, { event: 'task.failed' }), logged(2, { event: 'task.refunded' })])
  await held
  await relay(quick, 3)
  const seen = await read(quick, 0)
  t.same(seen.map(({ id }) => id), [logged(1).id, logged(3).id])
  land()
  await late
  t.same((await read(quick, seen.at(-1)!.position)).map(({ event, taskId: id }) => [id, event]), [[taskId(2), 'task.failed'], [taskId(2), 'task.refunded']])
}))

t.test('an append that lands late after its event was logged by another process adds nothing', onMongodb(async (t, empty) => {
  const [slow, quick] = await opened(t, empty)
  const { held, land } = holdAppend()
  const late = relay(slow, 1)
  await held
  await quick.relay(taskId(1), [], [logged(1)])
  await relay(quick, 2)
  land()
  await late
  t.same((await read(quick, 0)).map(({ id }) => id), [logged(1).id, logged(2).id])
}))

t.test('positions have no gap, whatever several processes append at once', onMongodb(async (t, empty) => {
  const handles = await opened(t, empty)
  await Promise.all(Array.from({ length: 80 }, (_, n) => relay(handles[n % 2]!, n, [logged(n, { loggedAt: T0 + n })])))
  t.same((await read(handles[0], 0)).map(({ position }) => position), Array.from({ length: 80 }, (_, n) => n + 1))
}))

t.test('a process that appends alone reads the last position of a tenant once', onMongodb(async (t, empty) => {
  const [store] = await opened(t, empty)
  await relay(store, 1)
  const reads = countReads(t, 'events')
  for (const n of [2, 3]) await relay(store, n)
  t.equal(reads(), 0)
  t.same((await read(store, 0)).map(({ id, position }) => [id, position]), [1, 2, 3].map((n) => [logged(n).id, n]))
}))

t.test('a remembered position that another process has taken is read again, and the events of other tenants in the command are appended once', onMongodb(async (t, empty) => {
  const [store, other] = await opened(t, empty)
  const globex = { tenant: 'globex' }
  await relay(store, 1)
  await relay(store, 2, [logged(2, globex)])
  for (const first of [3, 7]) {
    await relay(other, first)
    const [failed, refunded] = [logged(first + 1, { event: 'task.failed' }), logged(first + 1, { event: 'task.refunded' })]
    await Promise.all([relay(store, first + 1, [failed, refunded]), relay(store, first + 2, [logged(first + 2, globex)]), relay(store, first + 3, [logged(first + 3, { tenant: 'aaa' })])])
  }
  const positionsOf = async (tenant: string) => (await read(store, 0, tenant)).map(({ taskId: id, position }) => [id, position])
  t.same(await positionsOf('acme'), [1, 3, 4, 4, 7, 8, 8].map((n, index) => [taskId(n), index + 1]))
  t.same(await positionsOf('globex'), [2, 5, 9].map((n, index) => [taskId(n), index + 1]))
  t.same(await positionsOf('aaa'), [6, 10].map((n, index) => [taskId(n), index + 1]))
}))
