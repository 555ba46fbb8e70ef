/** What the controller relies on to clean up after a key: no key goes unseen, and none goes before it was let go. */
import type { Ref, Resources } from '../../../src/backends/resources/resources.ts'
import { eventually } from '../../flows/eventually.ts'
import { apiKey } from '../../backends/resources/manifests.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../resources.ts'
import { ci, keyOf, ownerOf, SECRET, watching } from './acme.ts'

/** Waits until nobody finds a resource, and nothing of that name is going. */
async function isGone(place: Place, resources: Resources, ref: Ref): Promise<void> {
  await eventually(`${ref.name} to be gone`, async () => ((await place.isThere(ref)) || resources.terminating(ref) ? null : true))
}

export const retainingPromises: Promises<Place> = {
  'a key that is retained is there as it was, and may be retained again': async (t, place) => {
    await place.declare(apiKey('ci', 'studio'))
    const { resources } = await watching(place)
    const before = keyOf(resources, ci(place))
    for (const _ of ['first', 'again']) {
      t.equal(await resources.retain(ownerOf(before)), 'retained')
      await place.settle()
      t.same(resources.get(ci(place)), before)
      t.equal(resources.terminating(ci(place)), null)
    }
  },

  'who is not there any more is not retained, nor is another one of that name in its place': async (t, place) => {
    await place.declare(apiKey('ci', 'studio'))
    const { resources } = await watching(place)
    const first = ownerOf(keyOf(resources, ci(place)))
    await place.withdraw(ci(place))
    await place.settle()
    t.equal(await resources.retain(first), 'gone')
    await place.declare(apiKey('ci', 'studio'))
    await place.settle()
    const second = ownerOf(keyOf(resources, ci(place)))
    for (const [why, owner] of [['another came under its name', first], ['it never was', { ...first, name: 'never' }]] as const) t.equal(await resources.retain(owner), 'gone', why)
    t.same(ownerOf(keyOf(resources, ci(place))), second)
    await place.withdraw(ci(place))
    t.equal(await place.isThere(ci(place)), false, 'nobody asked for it to be retained')
  },

  'a key that is deleted is told and not shown; it is going as long as it is there, gets no Secret, and is gone with its Secrets once it is released': async (t, place) => {
    await place.declare(apiKey('ci', 'studio', { secretName: 'ci-key' }), apiKey('loose', 'studio'))
    const { resources, told } = await watching(place)
    const [key, loose] = [keyOf(resources, ci(place)), ownerOf(keyOf(resources, ci(place, 'loose')))]
    t.equal(await resources.retain(ownerOf(key)), 'retained')
    t.equal(await resources.putSecret(key, 'ci-key', SECRET), 'written')
    await place.settle()
    told.length = 0
    for (const name of ['ci', 'loose']) await place.withdraw(ci(place, name))
    await place.settle()
    t.same([...new Set(told)].sort(), ['ApiKey acme/ci', 'ApiKey acme/loose'])
    t.same([resources.get(ci(place)), resources.list('ApiKey')], [null, []])
    for (const { uid, ...ref } of [ownerOf(key), loose]) t.same(resources.terminating(ref), (await place.isThere(ref)) ? { uid } : null, ref.name)
    t.equal(await resources.putSecret(key, 'ci-key', { ...SECRET, apiKey: 'svc_live_late' }), 'gone')
    await resources.removeSecrets(ownerOf(key))
    t.equal(await place.secretEntries(place.namespace('acme'), 'ci-key'), null)
    for (const owner of [ownerOf(key), loose, { ...loose, name: 'never' }]) await resources.release(owner)
    await isGone(place, resources, ci(place))
    await resources.release(ownerOf(key))
    await place.declare(apiKey('ci', 'studio'))
    await place.settle()
    t.match(resources.get(ci(place)), { metadata: { generation: 1 } })
    t.not(keyOf(resources, ci(place)).metadata.uid, key.metadata.uid)
    t.equal(resources.terminating(ci(place)), null)
  },

  'a key that was retained stays when it is deleted, also for whoever comes later, until it is released': async (t, place) => {
    await place.declare(apiKey('ci', 'studio'))
    const { resources } = await watching(place)
    const owner = ownerOf(keyOf(resources, ci(place)))
    await resources.retain(owner)
    await place.withdraw(ci(place))
    await place.settle()
    await resources.release({ ...owner, uid: 'another' })
    t.equal(await place.isThere(ci(place)), true)
    t.same(resources.terminating(ci(place)), { uid: owner.uid })
    await resources.close()
    const later = await watching(place)
    t.same([...new Set(later.told)], ['ApiKey acme/ci'])
    t.same([later.resources.get(ci(place)), later.resources.terminating(ci(place))], [null, { uid: owner.uid }])
    await later.resources.release(owner)
    await isGone(place, later.resources, ci(place))
  },
}
