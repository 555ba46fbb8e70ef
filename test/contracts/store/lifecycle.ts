import { Unavailable } from '../../../src/domain/errors.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { admit, ID, keyVersion, plan, T0, task, taskId } from './acme.ts'

export const lifePromises: Promises<Place> = {
  'answered writes are visible to a handle that opens later, without any close': async (t, place) => {
    const store = await place.open()
    await store.change(ID, plan(), T0)
    await Promise.all([store.change(ID, admit('r1', 500), T0), store.mintKey(keyVersion('k1', 0)), store.heartbeat('i1', 1)])
    await store.createTask(task(1))
    const later = await place.open()
    t.match(await later.subscription(ID), { coding: { reservations: { r1: { tokens: 500 } } } })
    t.same(await later.keyVersions('k1'), [keyVersion('k1', 0)])
    t.same(await later.heartbeats(), [{ instance: 'i1', count: 1 }])
    t.same(await later.task('acme', taskId(1)), task(1))
  },

  'a store that closes completes the calls in progress, and answered writes stay': async (t, place) => {
    const store = await place.open()
    await store.change(ID, plan(), T0)
    const changes = Promise.allSettled(Array.from({ length: 20 }, (_, i) => store.change(ID, admit(`r${i}`, 1), T0)))
    const minted = store.mintKey(keyVersion('k1', 0)).catch((error: unknown) => t.type(error, Unavailable))
    await store.close()
    const answers = await changes
    await minted
    const record = await (await place.open()).subscription(ID)
    for (const [i, answer] of answers.entries()) {
      if (answer.status === 'rejected') t.type(answer.reason, Unavailable)
      else t.ok(record?.coding?.reservations[`r${i}`], `r${i} was admitted and is stored`)
    }
  },

  'closing is idempotent, and a closed store is unavailable': async (t, place) => {
    const store = await place.open()
    await store.change(ID, plan(), T0)
    await Promise.all([store.close(), store.close()])
    await store.close()
    await t.rejects(store.change(ID, admit('r1', 1), T0), Unavailable)
    await t.rejects(store.subscription(ID), Unavailable)
    await t.rejects(store.mintKey(keyVersion('k1', 0)), Unavailable)
    await t.rejects(store.heartbeat('i1', 1), Unavailable)
    await t.rejects(store.declarations(), Unavailable)
    await t.rejects(store.createTask(task(1)), Unavailable)
    await t.rejects(store.task('acme', taskId(1)), Unavailable)
    await t.rejects(store.subscriptionsDue(['image'], T0, 1), Unavailable)
    await t.rejects(store.claimDeliveries(T0, T0 + 1, { limit: 1, perHost: 1, perTenant: 1, perQueue: 1 }), Unavailable)
  },
}
