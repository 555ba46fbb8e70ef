import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { T0 } from './acme.ts'

export const processPromises: Promises<Place> = {
  'the clock returns whole epoch milliseconds': async (t, place) => {
    const now = await (await place.open()).clock()
    t.ok(Number.isSafeInteger(now) && now > T0)
  },

  'the last heartbeat of every instance is stored until the instance is forgotten': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    t.same(await store.heartbeats(), [])
    await Promise.all([store.heartbeat('i1', 1), other.heartbeat('i2', 1)])
    await store.heartbeat('i1', 2)
    const heartbeats = async () => (await other.heartbeats()).toSorted((a, b) => (a.instance < b.instance ? -1 : 1))
    t.same(await heartbeats(), [{ instance: 'i1', count: 2 }, { instance: 'i2', count: 1 }])
    await other.forgetInstance('i2')
    await other.forgetInstance('i2')
    t.same(await heartbeats(), [{ instance: 'i1', count: 2 }])
  },

  'a late heartbeat changes nothing': async (t, place) => {
    const store = await place.open()
    await store.heartbeat('i1', 7)
    await store.heartbeat('i1', 6)
    t.same(await store.heartbeats(), [{ instance: 'i1', count: 7 }])
  },

  'a lease has one owner, who may renew it until it expires': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    t.equal(await store.takeLease('sweep', 'i1', T0 + 10, T0), true)
    t.equal(await other.takeLease('sweep', 'i2', T0 + 15, T0 + 5), false)
    t.equal(await store.takeLease('sweep', 'i1', T0 + 20, T0 + 9), true)
    t.equal(await other.takeLease('sweep', 'i2', T0 + 25, T0 + 19), false)
    t.equal(await other.takeLease('other sweep', 'i2', T0 + 25, T0 + 19), true)
    t.equal(await other.takeLease('sweep', 'i2', T0 + 30, T0 + 20), true)
    t.equal(await store.takeLease('sweep', 'i1', T0 + 40, T0 + 21), false)
  },

  'a lease that was taken while the clock was ahead is free once the clock is right': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const ahead = T0 + 24 * 60 * 60 * 1000
    for (const name of ['sweep', 'controller']) t.equal(await store.takeLease(name, 'i1', ahead + 10, ahead), true)
    t.equal(await other.takeLease('sweep', 'i2', ahead + 5, ahead - 5), false, 'the clocks of processes differ by less')
    t.equal(await other.takeLease('sweep', 'i2', T0 + 10, T0), true)
    t.equal(await store.takeLease('sweep', 'i1', T0 + 15, T0 + 5), false)
    t.equal(await store.takeLease('sweep', 'i1', T0 + 20, T0 + 10), true)
    t.equal(await store.takeLease('controller', 'i1', T0 + 10, T0), true)
    t.equal(await other.takeLease('controller', 'i2', T0 + 20, T0 + 10), true, 'its owner renewed it by the right clock')
  },

  'a lease released by its owner is free at once, and only its owner can release it': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    t.equal(await store.takeLease('sweep', 'i1', T0 + 10, T0), true)
    await other.releaseLease('sweep', 'i2')
    t.equal(await other.takeLease('sweep', 'i2', T0 + 15, T0 + 5), false)
    await store.releaseLease('sweep', 'i1')
    await store.releaseLease('sweep', 'i1')
    t.equal(await other.takeLease('sweep', 'i2', T0 + 15, T0 + 5), true)
  },

  'of many that take a free lease at once exactly one gets it': async (t, place) => {
    const handles = [await place.open(), await place.open()]
    const taken = await Promise.all(Array.from({ length: 50 }, (_, i) => handles[i % 2]!.takeLease('sweep', `i${i}`, T0 + 10, T0)))
    t.equal(taken.filter(Boolean).length, 1)
  },
}
