/** The duration and the outcome of each verb of a backend. */
import { Registry } from 'prom-client'
import t from 'tap'
import { instrument } from '../../src/bootstrap/backend-metrics.ts'
import type { Write } from '../../src/backends/store/queued-command.ts'
import { Busy, Unavailable } from '../../src/domain/errors.ts'

const CAUSE = new Error('the disk is full')

async function countsOf(registry: Registry): Promise<string[]> {
  const text = await registry.metrics()
  return [...text.matchAll(/^tollgate_store_duration_seconds_count\{verb="(\w+)",outcome="(\w+)"\} ([1-9]\d*)$/gm)].map(([, verb, outcome, count]) => `${verb} ${outcome} ${count}`)
}

t.test('a call is counted by its outcome, also one that throws at once', async (t) => {
  const registry = new Registry()
  const failing = (error: Error) => () => Promise.reject(error)
  const throwing = (): Promise<void> => {
    throw CAUSE
  }
  const store = instrument('store', { task: async () => null, clock: failing(new Unavailable('store', CAUSE)), change: failing(new Busy('store', CAUSE)), relay: failing(CAUSE), beat: throwing }, registry)
  t.equal(await store.task(), null)
  for (const verb of ['clock', 'change', 'relay', 'beat'] as const) await t.rejects(store[verb]())
  t.same(await countsOf(registry), ['task answered 1', 'clock unavailable 1', 'change busy 1', 'relay failed 1', 'beat failed 1'])
})

t.test('an answer that is given before its write is counted by the outcome of that', async (t) => {
  const registry = new Registry()
  const writes = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const
  const waiting = [...writes]
  const store = instrument('store', { decide: async () => ({ answer: 'admitted', durable: waiting.shift()?.promise }) }, registry)
  for (const answered of [await store.decide(), await store.decide()]) t.match(answered, { answer: 'admitted' })
  t.same(await countsOf(registry), [], 'neither is written yet')
  writes[0].resolve()
  writes[1].reject(new Unavailable('store', CAUSE))
  await Promise.allSettled(writes.map(({ promise }) => promise))
  t.same(await countsOf(registry), ['decide answered 1', 'decide unavailable 1'])
})

t.test('a command that is decided at once is counted as decided, by its write', async (t) => {
  const registry = new Registry()
  const writes: Write[] = []
  const store = instrument('store', { decideNow: (...[, , , write]: unknown[]) => (writes.push(write as Write), 'admitted') }, registry)
  const told: unknown[] = []
  const write = { stored: () => told.push('stored'), lost: (error: unknown) => told.push(error) }
  for (const answer of [store.decideNow('', {}, 0, write), store.decideNow('', {}, 0, write)]) t.equal(answer, 'admitted')
  t.same(await countsOf(registry), [], 'neither is written yet')
  const lost = new Unavailable('store', CAUSE)
  writes[0]?.stored()
  writes[1]?.lost(lost)
  t.same(told, ['stored', lost])
  t.same(await countsOf(registry), ['decide answered 1', 'decide unavailable 1'])
})
