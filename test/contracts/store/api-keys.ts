import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { ID, keyVersion, T0 } from './acme.ts'

export const keyPromises: Promises<Place> = {
  'a key version is minted once, by whichever handle': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const minted = await Promise.all([
      store.mintKey(keyVersion('k1', 0, { hash: 'one' })),
      other.mintKey(keyVersion('k1', 0, { hash: 'two' })),
      store.mintKey(keyVersion('k1', 0, { hash: 'three' })),
    ])
    t.equal(minted.filter(({ outcome }) => outcome === 'created').length, 1)
    const [key] = minted.filter(({ outcome }) => outcome === 'created').map((answer) => answer.key)
    for (const answer of minted) t.same(answer.key, key)
    t.same(await other.keyVersions('k1'), [key])
    t.same(await other.mintKey(keyVersion('k1', 0, { hash: 'four' })), { outcome: 'existing', key })
  },

  'a key is found by its hash only, in any state': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const key = keyVersion('k1', 0, { cap: 2 ** 53 - 1, expiresAt: 1, overlapUntil: 2, secretName: 'ci-key', tell: ['acme/old'] })
    await store.mintKey(key)
    t.same(await other.findKey(key.hash), key)
    await store.setKey(key.id, { state: 'deleted' }, [])
    t.same(await other.findKey(key.hash), { ...key, state: 'deleted' })
    t.equal(await other.findKey('another hash'), null)
  },

  'a change of a key sets the given members for every handle and keeps the others': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const key = keyVersion('k1', 0)
    await store.mintKey(key)
    const changed = await store.setKey(key.id, { state: 'active', subscription: 'acme/new', cap: 5, secretName: 'ci-key' }, [])
    t.same(changed, { ...key, state: 'active', subscription: 'acme/new', cap: 5, secretName: 'ci-key' })
    t.same(await other.setKey(key.id, { cap: null }, []), { ...changed, cap: null })
    t.same(await store.findKey(key.hash), { ...changed, cap: null })
    t.equal(await store.setKey('k1-7', { state: 'active' }, [ID]), null)
    t.same(await store.keyVersions('k1'), [{ ...changed, cap: null }])
  },

  'the last use of a key version moves forward only, whichever handle writes it, and changes nothing else': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const [first, second] = [keyVersion('k1', 0, { state: 'active' }), keyVersion('k2', 0, { state: 'revoked' })]
    await store.mintKey(first)
    await store.mintKey(second)
    await Promise.all([store.keysUsed([{ id: 'k2-0', at: T0 + 5 }, { id: 'k1-0', at: T0 + 9 }, { id: 'unknown-0', at: T0 }]), other.keysUsed([{ id: 'k1-0', at: T0 + 3 }])])
    await store.keysUsed([{ id: 'k1-0', at: T0 + 9 }, { id: 'k2-0', at: T0 }])
    await store.keysUsed([])
    t.same(await other.findKey(first.hash), { ...first, lastUsedAt: T0 + 9 })
    t.same(await other.findKey(second.hash), { ...second, lastUsedAt: T0 + 5 })
    t.same(await store.setKey('k1-0', { state: 'suspended' }, []), { ...first, state: 'suspended', lastUsedAt: T0 + 9 })
  },

  'subscriptions to notify of a change are stored with the key until they were notified': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await Promise.all(['k1', 'k2', 'k3'].map((keyId) => store.mintKey(keyVersion(keyId, 0))))
    t.same(await store.keysToTell(10), [])
    t.match(await store.setKey('k2-0', { state: 'active' }, ['acme/a', 'acme/b']), { tell: ['acme/a', 'acme/b'] })
    const again = await other.setKey('k2-0', { state: 'suspended' }, ['acme/b', 'acme/c'])
    t.match(again, { state: 'suspended', tell: ['acme/a', 'acme/b', 'acme/c'] })
    await store.setKey('k1-0', {}, ['acme/a'])
    t.same((await other.keysToTell(10)).map(({ id }) => id).toSorted(), ['k1-0', 'k2-0'])
    t.equal((await other.keysToTell(1)).length, 1)

    await store.told('k2-0', ['acme/a', 'acme/c', 'acme/never'])
    t.match(await store.findKey(keyVersion('k2', 0).hash), { state: 'suspended', tell: ['acme/b'] })
    await store.told('k2-0', ['acme/b'])
    await store.told('k2-0', ['acme/b'])
    await store.told('unknown-0', ['acme/b'])
    t.same((await other.keysToTell(10)).map(({ id }) => id), ['k1-0'])
  },

  'a revoked or deleted version is never revived by a change based on stale data': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await store.mintKey(keyVersion('k1', 0, { state: 'active' }))
    const revoked = await store.setKey('k1-0', { state: 'revoked' }, [ID])
    t.same(await other.setKey('k1-0', { state: 'active', cap: 5 }, ['acme/other']), revoked)
    t.same(await other.setKey('k1-0', { state: 'suspended' }, []), revoked)
    t.match(await other.setKey('k1-0', { state: 'revoked' }, [ID]), { state: 'revoked', tell: [ID] }, 'revoked twice is revoked')
    const deleted = await store.setKey('k1-0', { state: 'deleted', secretName: null }, [])
    t.match(deleted, { state: 'deleted', cap: null, tell: [ID] })
    for (const state of ['pending', 'active', 'suspended', 'revoked'] as const) t.same(await other.setKey('k1-0', { state }, []), deleted)
    t.same(await store.keysAlive('', 10), [])
    t.match(await store.setKey('k1-0', { secretName: 'old' }, []), { state: 'deleted', secretName: 'old' })
  },

  'the versions of a key are ordered newest first by number, not by text': async (t, place) => {
    const store = await place.open()
    await Promise.all([2, 10, 0, 9].map((revision) => store.mintKey(keyVersion('k1', revision))))
    await store.mintKey(keyVersion('k2', 11))
    await store.setKey('k1-9', { state: 'deleted' }, [])
    t.same((await store.keyVersions('k1')).map(({ revision }) => revision), [10, 9, 2, 0])
    t.same(await store.keyVersions('k3'), [])
  },

  'of a key with many versions the newest are read, and those that are not deleted; any is found by its id': async (t, place) => {
    const store = await place.open()
    const [revisions, last] = [[...Array(2_100).keys()], 2_099]
    const mint = (revision: number) => store.mintKey(keyVersion('k1', revision, { state: [3, 2_090].includes(revision) ? 'active' : 'deleted' }))
    while (revisions.length > 0) await Promise.all(revisions.splice(-50).map(mint))
    await Promise.all(['k0', 'k1-3', 'k2'].map((keyId) => store.mintKey(keyVersion(keyId, 1, { state: 'active' }))))
    const read = async (keyId: string) => (await store.keyVersions(keyId)).map(({ id }) => id)
    const [k1, ...others] = await Promise.all(['k1', 'k0', 'k1-3', 'k2'].map(read))
    t.same(others, [['k0-1'], ['k1-3-1'], ['k2-1']])
    t.same(k1, [...Array.from({ length: 16 }, (_, n) => `k1-${last - n}`), 'k1-3'])
    t.match(await store.keyVersion('k1-7'), { id: 'k1-7', revision: 7 })
    t.equal(await store.keyVersion('k1-2100'), null)
  },

  'keys that are not deleted are listed in pages ordered by id, and by subscription': async (t, place) => {
    const store = await place.open()
    await Promise.all(['k5', 'k3', 'k1', 'k4', 'k2'].map((keyId) => store.mintKey(keyVersion(keyId, 0))))
    await store.setKey('k2-0', { state: 'deleted' }, [])
    await store.setKey('k3-0', { state: 'revoked' }, [])
    await store.setKey('k4-0', { subscription: 'acme/other' }, [])
    const alive = async (after: string) => (await store.keysAlive(after, 3)).map(({ id }) => id)
    t.same(await alive(''), ['k1-0', 'k3-0', 'k4-0'])
    t.same(await alive('k4-0'), ['k5-0'])
    t.same(await alive('k5-0'), [])
    t.same((await store.keysOf(ID)).map(({ id }) => id).toSorted(), ['k1-0', 'k3-0', 'k5-0'])
    t.same((await store.keysOf('acme/other')).map(({ id }) => id), ['k4-0'])
    t.same(await store.keysOf('acme/none'), [])
  },

  'the sealed keys of ended versions are erased, earliest end first, and the versions stay': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await Promise.all(['k1', 'k2', 'k3', 'k4'].map((keyId) => store.mintKey(keyVersion(keyId, 0, { state: 'active' }))))
    t.equal(await store.forgetSealed(T0 + 1_000_000, 10), 0, 'none ended')
    await store.setKey('k1-0', { state: 'deleted', endedAt: T0 + 30 }, [])
    await store.setKey('k4-0', { state: 'deleted', endedAt: T0 + 5 }, [ID])
    await store.setKey('k2-0', { state: 'revoked', endedAt: T0 + 10 }, [])
    const deleted = await store.setKey('k3-0', { state: 'deleted', endedAt: T0 + 20 }, [])
    t.equal(await other.forgetSealed(T0 + 10, 10), 0, 'the bound is exclusive')
    t.equal(await other.forgetSealed(T0 + 30, 1), 1)
    const sealed = async () => (await Promise.all(['k1', 'k2', 'k3', 'k4'].map((keyId) => store.keyVersions(keyId)))).flat().filter((key) => key.sealed !== null).map(({ id }) => id)
    t.same(await sealed(), ['k1-0', 'k3-0', 'k4-0'])
    t.equal(await other.forgetSealed(T0 + 30, 10), 1)
    t.same(await store.findKey(keyVersion('k3', 0).hash), { ...deleted, sealed: null })
    t.match(await store.setKey('k2-0', { state: 'deleted' }, [ID]), { state: 'deleted', endedAt: T0 + 10, sealed: null, tell: [ID] })
    t.equal(await other.forgetSealed(T0 + 30, 10), 0, 'only once')
    t.same(await sealed(), ['k1-0', 'k4-0'], 'not while a subscription is still to be notified of its end')
    await store.told('k4-0', [ID])
    t.equal(await other.forgetSealed(T0 + 30, 10), 1)
    t.same(await sealed(), ['k1-0'])
  },
}
