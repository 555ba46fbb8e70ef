import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { admit, hold, ID, mediaPlan, plan, settle, T0, taskId } from './acme.ts'

export const subscriptionPromises: Promises<Place> = {
  'a subscription without a Plan does not exist': async (t, place) => {
    const store = await place.open()
    t.equal(await store.subscription(ID), null)
    t.same(await store.change(ID, { op: 'keysChanged' }, T0), { outcome: 'none' })
    t.equal(await store.subscription(ID), null)
  },

  'an answered change is in the record that every handle reads': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    t.same(await store.change(ID, plan(), T0), { outcome: 'applied' })
    const answer = await store.change(ID, admit('r1', 500), T0 + 1)
    t.match(answer, { outcome: 'admitted', reserved: 500 })
    const record = await other.subscription(ID)
    t.match(record, { id: ID, tenant: 'acme', at: T0 + 1, plan: { uid: 'plan-1' } })
    t.match(record?.coding?.reservations, { r1: { tokens: 500, keyId: 'key-1' } })
    t.same(record, await store.subscription(ID))
  },

  'the version rises whenever the record is replaced, and only then': async (t, place) => {
    const store = await place.open()
    await store.change(ID, plan(), T0)
    const first = (await store.subscription(ID))?.version ?? 0
    t.ok(first >= 1)
    await store.change(ID, admit('r1', 500), T0)
    const second = (await store.subscription(ID))?.version ?? 0
    t.ok(second > first)
    await store.change(ID, { op: 'extend', id: 'unknown', tokens: 600 }, T0)
    await store.change(ID, admit('r1', 500), T0)
    t.equal((await store.subscription(ID))?.version, second)
  },

  'a record that was read cannot be changed, since others read the same object': async (t, place) => {
    const store = await place.open()
    await store.change(ID, plan(), T0)
    const record = await store.subscription(ID)
    t.throws(() => record && (record.state = 'Retired'), TypeError)
    t.throws(() => record?.coding && (record.coding.reservations = {}), TypeError)
    t.match(await store.change(ID, admit('r1', 500), T0), { outcome: 'admitted' })
    t.equal((await store.subscription(ID))?.state, 'Active')
  },

  'the subscriptions of a tenant are listed in pages by id, also those whose Plan was removed, and nobody else\'s': async (t, place) => {
    const store = await place.open()
    const ids = ['acme/a', 'acme/b', 'acme/c', 'acme-2/a', 'acme0/a', 'acm/z', 'globex/a']
    await Promise.all(ids.map((id) => store.change(id, plan(), T0)))
    await store.change('acme/b', { op: 'removePlan', uid: 'plan-1' }, T0)
    const page = async (after: string, limit = 10) => (await store.subscriptionsOf('acme', after, limit)).map(({ id }) => id)
    t.same(await page(''), ['acme/a', 'acme/b', 'acme/c'])
    t.same(await page('', 2), ['acme/a', 'acme/b'])
    t.same(await page('acme/b', 2), ['acme/c'])
    t.same(await page('acme/c'), [])
    t.same(await store.subscriptionsOf('nobody', '', 10), [])
  },

  'subscriptions are independent': async (t, place) => {
    const store = await place.open()
    const ids = ['acme/a', 'acme/b', 'globex/a']
    await Promise.all(ids.map((id) => store.change(id, plan(), T0)))
    await Promise.all(ids.map((id, i) => store.change(id, admit('r1', 100 * (i + 1)), T0)))
    for (const [i, id] of ids.entries()) {
      const record = await store.subscription(id)
      t.match(record, { id, tenant: id.split('/')[0], coding: { reservations: { r1: { tokens: 100 * (i + 1) } } } })
    }
  },

  'subscriptions with a Plan or with open reservations are listed in pages ordered by id': async (t, place) => {
    const store = await place.open()
    const ids = ['acme/a', 'acme/b', 'acme/c', 'globex/a', 'globex/b']
    await Promise.all(ids.toReversed().map((id) => store.change(id, plan(), T0)))
    await Promise.all(ids.slice(1, 4).map((id) => store.change(id, admit('r1', 100), T0)))
    await store.change('acme/c', { op: 'removePlan', uid: 'plan-1' }, T0)
    await store.change('acme/b', settle('r1', 10), T0)
    const listed = async (what: 'plan' | 'reservations', after: string, limit: number) =>
      (await store.subscriptionsWith(what, after, limit)).map(({ id }) => id)

    t.same(await listed('plan', '', 2), ['acme/a', 'acme/b'])
    t.same(await listed('plan', 'acme/b', 2), ['globex/a', 'globex/b'])
    t.same(await listed('plan', 'globex/b', 2), [])
    t.same(await listed('reservations', '', 10), ['acme/c', 'globex/a'])
    t.same(await store.subscriptionsWith('reservations', 'acme/c', 1), [await store.subscription('globex/a')])
  },

  'subscriptions with open holds or with ended periods are listed in pages ordered by id': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const ids = ['acme/a', 'acme/b', 'globex/a']
    const later = T0 + 40 * 24 * 3_600_000
    await Promise.all(ids.map((id) => store.change(id, mediaPlan(), T0)))
    await Promise.all(ids.map((id) => store.change(id, hold(taskId(1)), T0)))
    const listed = async (what: 'holds' | 'past', after = '', limit = 10) =>
      (await other.subscriptionsWith(what, after, limit)).map(({ id }) => id)
    t.same(await listed('holds', 'acme/a', 1), ['acme/b'])
    t.same(await listed('past'), [])

    await store.change('acme/b', { op: 'close', task: taskId(1), actual: 1 }, T0)
    for (const id of ['acme/a', 'acme/b']) await store.change(id, hold(taskId(2)), later)
    await store.change('acme/b', { op: 'close', task: taskId(2), actual: 1 }, later)
    t.same(await listed('holds'), ['acme/a', 'globex/a'])
    t.same(await listed('past'), ['acme/a', 'acme/b'])
    // The answer is not checked: a retry after a lost answer finds the period archived.
    await store.change('acme/b', { op: 'archived', n: 0 }, later)
    t.same(await listed('past'), ['acme/a'])
  },
}
