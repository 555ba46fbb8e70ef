/** What is held for a running task is extended while its plan and its key work, and is returned and charged as the client was told. */
import t, { type Test } from 'tap'
import { balanceOf } from '../../src/domain/balance.ts'
import type { KeyVersion } from '../../src/domain/api-keys.ts'
import { extendHold, fitHold } from '../../src/tasks/fit-hold.ts'
import { cancel, end } from '../../src/tasks/run-outcome.ts'
import type { Task } from '../../src/domain/task.ts'
import type { MediaInfo } from '../../src/domain/media-info.ts'
import type { Offer } from '../../src/backends/engines/engine.ts'
import { LIMITS } from '../fakes/engine.ts'
import { taskHistory } from '../../src/tasks/task-history.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { hold, keyVersion, mediaPlan, T0, task, taskId } from '../contracts/store/acme.ts'
import { contextOf, storeOf } from './task-context.ts'

const ID = 'acme/studio'
const HELD = 100

/** A running task for which more may be held. */
async function running(t: Test, key: Partial<KeyVersion> = {}) {
  const store = await storeOf(t)
  await store.change(ID, mediaPlan(), T0)
  await store.mintKey(keyVersion('key-1', 1, { subscription: ID, state: 'active', ...key }))
  const facts = { state: 'queued', sweepAt: null, estimatedCost: HELD, quotedCost: HELD, extendableTo: 300, cancelPercent: 30 } as const
  await store.createTask(task(1, facts))
  await store.change(ID, { ...hold(taskId(1)), amount: HELD }, T0)
  const claimed = await store.change(ID, { op: 'claim', claim: 'c', kinds: ['image'] }, T0)
  const epoch = claimed.outcome === 'claimed' ? claimed.epoch : 0
  const first = (await store.moveTask(taskId(1), { from: ['queued'] }, 'processing', { epoch }))!
  const moves = { hold: HELD, capture: 0, void: 0 }
  const moved: TaskContext['moved'] = (move, _, micro) => void (moves[move] += micro)
  return { store, context: contextOf(store, () => T0, { moved }), moves, first }
}

t.test('a cancellation costs a share of the estimate at the creation, whatever is held by then', async (t) => {
  const { store, context, moves, first } = await running(t)
  t.match(await extendHold(context, first, 250), { estimatedCost: 250 })
  t.match(await cancel(context, (await store.task('acme', first.id))!), { state: 'canceled', actualCost: 30, refundAmount: 220 })
  t.match(balanceOf((await store.subscription(ID))!.media!), { held: 0, burned: 30 })
  t.same(moves, { hold: 250, capture: 30, void: 220 })
})

t.test('what was added is returned and counted, also of an extension that was cut off between its writes', async (t) => {
  const { store, context, moves, first } = await running(t)
  const cutOff = { ...context, store: Object.assign(Object.create(store) as typeof store, { moveTask: async () => null }) }
  t.match(await extendHold(cutOff, first, 250), { estimatedCost: HELD })
  t.match(balanceOf((await store.subscription(ID))!.media!), { held: 250 })
  t.match(await cancel(context, first), { state: 'canceled', actualCost: 30, refundAmount: 70 })
  t.match(balanceOf((await store.subscription(ID))!.media!), { held: 0, burned: 30 })
  t.same(moves, { hold: 250, capture: 30, void: 220 })
})

t.test('a picture at another address is not made where its model makes more than is held, whatever size the picture has', async (t) => {
  const { context, first } = await running(t)
  const inpaint: Task = { ...first, object: 'operation', kind: 'inpaint', input: { media_url: 'https://acme.example/p.png', mask_url: 'https://acme.example/m.png', prompt: 'a boat' }, price: { kind: 'inpaint', micro: 100, per: 'Megapixel' } }
  const media = [{ contentType: 'image/png', width: 16, height: 16, durationMs: null }] as unknown as MediaInfo[]
  const route = { max: LIMITS } as Offer['route']
  const fit = (Megapixel: number, one = inpaint) => fitHold({ ...context, linkedFile: () => null }, one, media, { route, quote: () => ({ Job: 1000, Second: 0, Megapixel }) })
  t.match(await fit(1000), { outcome: 'held' })
  t.match(await fit(2500), { outcome: 'held', task: { estimatedCost: 250 } })
  t.match(await fit(1500, { ...inpaint, extendableTo: HELD }), { outcome: 'failed', code: 'result_too_large', details: { limit: { megapixels: 1 } } })
})

t.test('the events of a task whose hold was extended add up, and none of them changes later', async (t) => {
  const { store, context, first } = await running(t)
  const before = taskHistory(first, [], 0, context.link)
  const extended = await extendHold(context, first, 250)
  t.same(taskHistory(extended, [], before.at(-1)!.sequence, context.link), [])
  await end(context, first.id, { from: ['processing'] }, { outcome: 'completed', result: { file: 'f', contentType: 'image/png', bytes: 1, width: 1, height: 1, durationMs: null, expiresAt: T0 }, cost: 220 })
  const after = taskHistory((await store.task('acme', first.id))!, [], 0, context.link)
  t.same(after.slice(0, before.length), before)
  const balance = after.filter(({ name }) => name.startsWith('balance.')).map(({ name, data }) => [name, data['amount']])
  t.same(balance, [['balance.held', '0.0001'], ['balance.held', '0.00015'], ['balance.burned', '0.00022'], ['balance.returned', '0.00003']])
  t.same(after.map(({ sequence }) => sequence), after.map(({ sequence }) => sequence).toSorted((a, b) => a - b))
})

t.test('the hold of a task that a session of the dashboard created is extended, though it has no key', async (t) => {
  const { context, first } = await running(t)
  t.match(await extendHold(context, { ...first, keyId: 'dashboard' }, 250), { estimatedCost: 250 })
})

t.test('nothing is extended for a key or a plan that no longer works', async (t) => {
  const keys: Partial<KeyVersion>[] = [{ state: 'revoked', endedAt: T0 }, { state: 'suspended' }, { expiresAt: T0 }]
  for (const key of keys) {
    const { store, context, first } = await running(t, key)
    t.match(await extendHold(context, first, 250), { estimatedCost: HELD }, JSON.stringify(key))
    t.match(balanceOf((await store.subscription(ID))!.media!), { held: HELD })
  }
  const { store, context, first } = await running(t)
  await store.change(ID, { op: 'removePlan', uid: (await store.subscription(ID))!.plan!.uid }, T0)
  t.match(await extendHold(context, first, 250), { estimatedCost: HELD })
})
