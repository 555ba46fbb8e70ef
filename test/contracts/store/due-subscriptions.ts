import type { Store } from '../../../src/backends/store/store.ts'
import type { MediaPeriod } from '../../../src/domain/subscription/subscription.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { hold, mediaPlan, T0, taskId } from './acme.ts'

const KINDS = ['image', 'video', 'music']
const STUDIO = 'acme/studio'

/** Queues tasks by their holds, oldest first. */
async function queue(store: Store, id: string, count: number, kind = 'image', now = T0): Promise<void> {
  await Promise.all(Array.from({ length: count }, (_, i) => store.change(id, hold(taskId(i), kind), now)))
}

function claim(store: Store, id: string, name: string, now = T0) {
  return store.change(id, { op: 'claim', claim: name, kinds: KINDS }, now)
}

function period(n: number, burned: number): MediaPeriod {
  return { n, start: T0 + n, end: T0 + n + 1, allowance: 1000, burned, usage: { '2026-01-05': { image: { count: 1, burned } } } }
}

export const duePromises: Promises<Place> = {
  'a subscription is due for a kind while a task of that kind is ready and a concurrency slot is free': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await store.change(STUDIO, mediaPlan({ maxConcurrentTasks: 1 }), T0)
    t.same(await store.subscriptionsDue(KINDS, T0, 10), [])
    await queue(store, STUDIO, 2)
    t.same(await other.subscriptionsDue(['video', 'image'], T0, 10), [STUDIO])
    t.same(await other.subscriptionsDue(['video', 'music'], T0, 10), [])
    t.same(await other.subscriptionsDue([], T0, 10), [])

    t.match(await claim(store, STUDIO, 'w1'), { outcome: 'claimed', task: taskId(0) })
    t.same(await other.subscriptionsDue(KINDS, T0 + 1, 10), [], 'no slot is free')
    await store.change(STUDIO, { op: 'close', task: taskId(0), actual: 1 }, T0 + 2)
    t.same(await other.subscriptionsDue(KINDS, T0 + 2, 10), [STUDIO])
    await store.change(STUDIO, { op: 'close', task: taskId(1), actual: null }, T0 + 3)
    t.same(await other.subscriptionsDue(KINDS, T0 + 3, 10), [])
  },

  'a task that is ready at once is due to a process whose clock is behind that of the one which queued it': async (t, place) => {
    const [ahead, behind] = [await place.open(), await place.open()]
    await ahead.change(STUDIO, mediaPlan(), T0)
    await queue(ahead, STUDIO, 1, 'image', T0 + 20)
    t.same(await behind.subscriptionsDue(KINDS, T0, 10), [STUDIO])
    const claimed = await claim(behind, STUDIO, 'w1', T0)
    t.match(claimed, { outcome: 'claimed', task: taskId(0) })
    const epoch = claimed.outcome === 'claimed' ? claimed.epoch : NaN
    await ahead.change(STUDIO, { op: 'requeue', task: taskId(0), epoch, readyAt: T0 + 40, served: true }, T0 + 40)
    t.same(await behind.subscriptionsDue(KINDS, T0, 10), [STUDIO], 'handed back')
  },

  'a requeued task makes its subscription due at its time, and only for its kind': async (t, place) => {
    const store = await place.open()
    await store.change(STUDIO, mediaPlan(), T0)
    await queue(store, STUDIO, 1)
    const claimed = await claim(store, STUDIO, 'w1')
    const epoch = claimed.outcome === 'claimed' ? claimed.epoch : NaN
    await store.change(STUDIO, { op: 'requeue', task: taskId(0), epoch, readyAt: T0 + 5000, served: true }, T0)
    await store.change(STUDIO, hold(taskId(1), 'video'), T0)
    t.same(await store.subscriptionsDue(['image'], T0 + 4999, 10), [], 'the ready video is of another kind')
    t.same(await store.subscriptionsDue(['video'], T0 + 4999, 10), [STUDIO])
    t.same(await store.subscriptionsDue(['image'], T0 + 5000, 10), [STUDIO])
  },

  'the longest unserved subscription is due first, however many tasks another has queued': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const ids = ['acme/big', 'globex/studio', 'initech/studio']
    await Promise.all(ids.map((id) => store.change(id, mediaPlan(), T0)))
    await queue(store, 'acme/big', 200)
    await queue(store, 'globex/studio', 1, 'video', T0 + 10)
    await queue(other, 'initech/studio', 2, 'image', T0 + 20)
    const due = (limit = 10) => other.subscriptionsDue(KINDS, T0 + 100, limit)
    t.same(await due(), ids, 'never served: longest waiting first')
    await claim(store, 'acme/big', 'w1', T0 + 30)
    t.same(await due(), ['globex/studio', 'initech/studio', 'acme/big'])
    await claim(store, 'initech/studio', 'w2', T0 + 40)
    t.same(await due(), ['globex/studio', 'acme/big', 'initech/studio'])
    t.same(await due(2), ['globex/studio', 'acme/big'])
    await claim(store, 'acme/big', 'w3', T0 + 50)
    t.same(await due(), ['globex/studio', 'initech/studio', 'acme/big'])
  },

  'a subscription is listed once, however many kinds it is due for': async (t, place) => {
    const store = await place.open()
    for (const id of ['acme/a', 'acme/b']) {
      await store.change(id, mediaPlan(), T0)
      for (const [i, kind] of KINDS.entries()) await store.change(id, hold(taskId(i), kind), T0 + i)
    }
    t.same(await store.subscriptionsDue(KINDS, T0 + 10, 10), ['acme/a', 'acme/b'])
    t.same(await store.subscriptionsDue(KINDS, T0 + 10, 2), ['acme/a', 'acme/b'])
    t.same(await store.subscriptionsDue(['music', 'video'], T0 + 10, 1), ['acme/a'])
  },

  'an ended period is archived once, and the first copy stays': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    t.same(await store.periods(STUDIO), [])
    await Promise.all([store.archivePeriod(STUDIO, period(10, 4)), other.archivePeriod(STUDIO, period(10, 4))])
    await store.archivePeriod(STUDIO, period(9, 2 ** 53 - 1))
    await other.archivePeriod(STUDIO, period(9, 0))
    await store.archivePeriod('acme/other', period(1, 1))
    t.same(await other.periods(STUDIO), [period(9, 2 ** 53 - 1), period(10, 4)])
  },
}
