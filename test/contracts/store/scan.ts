/** Promises about reading everything that a store keeps. */
import type { Kept, Store } from '../../../src/backends/store/store.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { delivery, keyVersion, logged, mediaPlan, plan, T0, task, taskId } from './acme.ts'

/** Everything of a kind, in parts of two. */
async function all<K extends keyof Kept>(store: Store, what: K): Promise<Kept[K][]> {
  const everything: Kept[K][] = []
  for (let after: string | null = null, parts = 0; parts < 20; parts++) {
    const { found, next }: { found: Kept[K][]; next: string | null } = await store.scan(what, after, 2)
    everything.push(...found)
    if (next === null) return everything
    after = next
  }
  throw new Error(`${what} has no end`)
}

export const scanPromises: Promises<Place> = {
  'everything of a kind is read in parts, once, in any state and without what refers to it': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const ids = ['acme/a', 'acme/b', 'beta/a', 'beta/b', 'gamma/a']
    for (const id of ids) await store.change(id, id.endsWith('a') ? mediaPlan() : plan(), T0)
    for (const id of ids) await store.change(id, { op: 'removePlan', uid: 'plan-1' }, T0)
    t.same((await all(other, 'subscriptions')).map(({ id, plan: removed }) => [id, removed]), ids.map((id) => [id, null]))
    t.same(await all(other, 'subscriptions'), await Promise.all(ids.map((id) => store.subscription(id))))

    const period = { n: 0, start: T0, end: T0 + 10, allowance: 7, burned: 0, usage: {} }
    for (const n of [10, 2]) for (const id of ['acme/a', 'gone/a']) await store.archivePeriod(id, { ...period, n })
    t.same(new Set((await all(other, 'periods')).map((one) => JSON.stringify(one))).size, 4)
    t.same((await all(other, 'periods')).filter(({ subscription, n }) => subscription === 'gone/a' && n === 10), [{ ...period, n: 10, subscription: 'gone/a' }])

    const keys = [0, 1, 2].map((revision) => keyVersion('k1', revision, { state: revision === 0 ? 'deleted' : 'active', endedAt: revision === 0 ? T0 : null }))
    for (const key of keys) await store.mintKey(key)
    t.same(await all(other, 'keys'), keys)

    const tasks = [task(1), task(2, { state: 'rejected', tenant: 'beta', endedAt: T0 }), task(3, { state: 'failed', object: 'operation', kind: 'trim', endedAt: T0, sweepAt: null })]
    for (const one of tasks) await store.createTask(one)
    t.same(await all(other, 'tasks'), tasks)

    const deliveries = [delivery(3, { event: 'task.failed' }), delivery(3, { event: 'task.refunded', state: 'waiting', nextAttemptAt: null })]
    await store.relay(taskId(3), deliveries, [logged(3, { event: 'task.failed' }), logged(3, { event: 'task.refunded' })])
    t.same(await all(other, 'deliveries'), deliveries)
    t.same(await all(other, 'events'), [logged(3, { event: 'task.failed' }), logged(3, { event: 'task.refunded' })].map((event, n) => ({ ...event, position: n + 1 })))
  },
}
