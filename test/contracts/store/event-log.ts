import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Store } from '../../../src/backends/store/store.ts'
import type { LoggedEvent } from '../../../src/domain/task.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { logged, T0, task } from './acme.ts'

/** Relays events, each of a task of its own. */
async function relay(store: Store, n: number, facts: Partial<LoggedEvent> = {}): Promise<void> {
  const event = logged(n, facts)
  await store.createTask(task(n, { tenant: event.tenant, state: 'completed' }))
  await store.relay(event.taskId, [], [event])
}

/** Follows the log of a tenant from the position `after` to its present end, `limit` events at a time. */
async function follow(store: Store, tenant: string, after = 0, limit = 3): Promise<{ ids: string[]; position: number }> {
  const ids: string[] = []
  let position = after
  for (;;) {
    const page = await store.events(tenant, position, 0, limit)
    if (page.length === 0) return { ids, position }
    ids.push(...page.map(({ id }) => id))
    position = page.at(-1)?.position ?? position
  }
}

export const eventPromises: Promises<Place> = {
  'the events of a task are logged once, in their order, each tenant for itself': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await store.createTask(task(1, { state: 'failed' }))
    const [failed, refunded] = [logged(1, { event: 'task.failed' }), logged(1, { event: 'task.refunded' })]
    await Promise.all([store, other, store].map((handle) => handle.relay(failed.taskId, [], [failed, refunded])))
    await relay(other, 2)
    await relay(other, 3, { tenant: 'globex' })
    await store.relay(failed.taskId, [], [{ ...failed, loggedAt: T0 + 9 }, refunded])
    const events = await store.events('acme', 0, 0, 10)
    t.same(events.map(({ position: _position, ...event }) => event), [failed, refunded, logged(2)])
    t.ok(events.every(({ position }, n) => position > (events[n - 1]?.position ?? 0)))
    t.same((await other.events('acme', events[0]!.position, 0, 1)).map(({ id }) => id), [refunded.id])
    t.same((await follow(other, 'globex')).ids, [logged(3).id])
    t.same((await follow(other, 'nobody')).ids, [])
  },

  'a task that was removed logs nothing': async (t, place) => {
    const store = await place.open()
    await store.relay(logged(1).taskId, [], [logged(1)])
    t.same(await store.events('acme', 0, 0, 10), [])
  },

  'a reader that follows the log misses nothing and sees nothing twice, however many write at once': async (t, place) => {
    const handles = [await place.open(), await place.open(), await place.open()]
    const reader = await place.open()
    const count = 60
    let written = false
    const writing = Promise.all(Array.from({ length: count }, (_, n) => relay(handles[n % 3]!, n))).then(() => (written = true))
    const read: string[] = []
    for (let position = 0, last = false; !last; ) {
      last = written
      const page = await follow(reader, 'acme', position)
      position = page.position
      read.push(...page.ids)
      await nextTurn()
    }
    await writing
    t.equal(read.length, count)
    t.same(read.toSorted(), Array.from({ length: count }, (_, n) => logged(n).id).toSorted())
  },

  'old events are removed and hidden before, and a reader goes on behind them, also when none is left': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    for (const n of [1, 2, 3]) await relay(store, n, { loggedAt: T0 + n })
    t.same((await store.events('acme', 0, T0 + 2, 10)).map(({ id }) => id), [logged(2).id, logged(3).id])
    const { position } = await follow(store, 'acme')
    t.equal(await other.removeEvents(T0 + 3, 1), 1, 'as many as were asked for')
    t.equal(await other.removeEvents(T0 + 3, 10), 1)
    t.same((await follow(store, 'acme')).ids, [logged(3).id])
    t.equal(await store.removeEvents(T0 + 4, 10), 1)
    t.equal(await store.removeEvents(T0 + 4, 10), 0)
    t.same((await follow(store, 'acme')).ids, [])
    await relay(other, 4)
    t.same((await follow(store, 'acme', position)).ids, [logged(4).id])
  },

  'after a restore, a reader of the lost log goes on behind what it has read, also of a tenant that is new to the store': async (t, place) => {
    const store = await place.open()
    await relay(store, 1)
    await store.raiseEventFloor(1000)
    await store.raiseEventFloor(999)
    const other = await place.open()
    for (const n of [2, 3]) await relay(other, n)
    await relay(other, 4, { tenant: 'globex' })
    t.same((await other.events('acme', 0, 0, 10)).map(({ position }) => position), [1, 1001, 1002])
    t.same((await other.events('globex', 1000, 0, 10)).map(({ id }) => id), [logged(4).id])
    t.equal(await other.removeEvents(T0 + 10, 10), 4)
    await relay(other, 5)
    t.same((await follow(other, 'acme', 1002)).ids, [logged(5).id])
  },
}
