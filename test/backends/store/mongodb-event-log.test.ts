/** Writes to the event log of MongoDB that land late: none of them lands behind a reader. */
import { Collection } from 'mongodb'
import t, { type Test } from 'tap'
import type { Store } from '../../../src/backends/store/store.ts'
import { logged, T0, task, taskId } from '../../contracts/store/acme.ts'
import { mongodb } from '../../servers/mongodb.ts'
import { emptyDatabase } from './empty-store.ts'

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

async function relay(store: Store, n: number, events = [logged(n)]): Promise<void> {
  await store.createTask(task(n, { state: 'completed' }))
  await store.relay(taskId(n), [], events)
}

const read = (store: Store, after: number) => store.events('acme', after, 0, 100)

async function opened(t: Test, server: string): Promise<[Store, Store]> {
  const place = await (await emptyDatabase(t, server)).place(t)
  return [await place.open(), await place.open()]
}

t.test('an append that lands late takes a position after all that readers saw', async (t) => {
  const server = await mongodb(t)
  if (!server) return
  const [slow, quick] = await opened(t, server)
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
})

t.test('an append that lands late after its event was logged by another process adds nothing', async (t) => {
  const server = await mongodb(t)
  if (!server) return
  const [slow, quick] = await opened(t, server)
  const { held, land } = holdAppend()
  const late = relay(slow, 1)
  await held
  await quick.relay(taskId(1), [], [logged(1)])
  await relay(quick, 2)
  land()
  await late
  t.same((await read(quick, 0)).map(({ id }) => id), [logged(1).id, logged(2).id])
})

t.test('positions have no gap, whatever several processes append at once', async (t) => {
  const server = await mongodb(t)
  if (!server) return
  const handles = await opened(t, server)
  await Promise.all(Array.from({ length: 80 }, (_, n) => relay(handles[n % 2]!, n, [logged(n, { loggedAt: T0 + n })])))
  t.same((await read(handles[0], 0)).map(({ position }) => position), Array.from({ length: 80 }, (_, n) => n + 1))
})
