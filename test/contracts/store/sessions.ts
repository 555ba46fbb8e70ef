import type { Session } from '../../../src/domain/sessions.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { T0 } from './acme.ts'

const session = (id: string, more: Partial<Session> = {}): Session => ({ id, user: { id: 'u1', name: 'Ada' }, signIn: 'oidc', tenants: ['acme', 'globex'], tenant: 'acme', createdAt: T0, expiresAt: T0 + 100, ...more })

export const sessionPromises: Promises<Place> = {
  'a session is the same for every process until it is ended': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    t.equal(await store.session('s1'), null)
    await store.openSession(session('s1'), T0)
    await store.openSession(session('s2', { tenants: null, signIn: 'local' }), T0)
    t.same(await other.session('s1'), session('s1'))
    t.same(await other.session('s2'), session('s2', { tenants: null, signIn: 'local' }))
    await other.endSession('s1')
    await other.endSession('s1')
    t.equal(await store.session('s1'), null)
    t.not(await store.session('s2'), null)
  },

  'a session is never replaced by another of its id': async (t, place) => {
    const store = await place.open()
    await store.openSession(session('s1'), T0)
    await store.openSession(session('s1', { tenant: 'globex' }), T0)
    t.same(await store.session('s1'), session('s1'))
  },

  'the tenant of a session changes, and one that was ended does not come back': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await store.openSession(session('s1'), T0)
    t.same(await other.switchTenant('s1', 'globex'), session('s1', { tenant: 'globex' }))
    t.same(await store.session('s1'), session('s1', { tenant: 'globex' }))
    await store.endSession('s1')
    t.equal(await other.switchTenant('s1', 'acme'), null)
    t.equal(await store.session('s1'), null)
  },

  'sessions that have expired are removed when another is opened': async (t, place) => {
    const store = await place.open()
    await store.openSession(session('s1', { expiresAt: T0 + 10 }), T0)
    await store.openSession(session('s2', { expiresAt: T0 + 11 }), T0)
    await store.openSession(session('s3'), T0 + 10)
    t.equal(await store.session('s1'), null)
    t.not(await store.session('s2'), null)
  },

  'of many that use a value at once exactly one succeeds, until it is forgotten': async (t, place) => {
    const handles = [await place.open(), await place.open()]
    const used = await Promise.all(Array.from({ length: 20 }, (_, i) => handles[i % 2]!.useOnce('h1', T0 + 10, T0)))
    t.equal(used.filter(Boolean).length, 1)
    t.equal(await handles[0]!.useOnce('h2', T0 + 10, T0), true)
    t.equal(await handles[0]!.useOnce('h1', T0 + 20, T0 + 9), false)
    t.equal(await handles[1]!.useOnce('h1', T0 + 20, T0 + 10), true)
  },
}
