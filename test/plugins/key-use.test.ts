/** When keys were last used, and which requests were refused: noted by requests, written every few seconds and at the end. */
import t, { type Test } from 'tap'
import { openKeyUse } from '../../plugins/auth/key-use.ts'
import { openRefusalCounts } from '../../plugins/metering/refusal-counts.ts'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'
import { Unavailable } from '../../src/domain/errors.ts'

const MINUTE = 60_000

t.test('a key is written at most once a minute, however often it is used', async (t) => {
  const writes: object[][] = []
  const keyUse = openKeyUse({ keysUsed: async (uses) => void writes.push(uses) })
  for (let n = 0; n < 1000; n++) {
    keyUse.note('k1-0', n)
    keyUse.note('k2-0', n)
  }
  await keyUse.flush()
  keyUse.note('k1-0', MINUTE)
  await keyUse.flush()
  keyUse.note('k1-0', MINUTE + 999)
  await keyUse.flush()
  t.same(writes, [[{ id: 'k1-0', at: 999 }, { id: 'k2-0', at: 999 }], [{ id: 'k1-0', at: MINUTE + 999 }]])
})

t.test('uses that could not be written are written by the next call, in batches', async (t) => {
  const writes: number[] = []
  let isAway = true
  const keyUse = openKeyUse({
    async keysUsed(uses) {
      if (isAway) throw new Unavailable('store', new Error('away'))
      writes.push(uses.length)
    },
  })
  for (let n = 0; n < 1200; n++) keyUse.note(`k${n}-0`, 1)
  await t.rejects(keyUse.flush(), Unavailable)
  isAway = false
  await keyUse.flush()
  t.same(writes, [500, 500, 200])
})

t.test('a flood of refused requests is one change for each subscription, and a change that fails loses its own counts and ends the attempt', async (t) => {
  const changes: [string, object][] = []
  const change = async (id: string, command: object): Promise<never> => {
    changes.push([id, command])
    if (id === 'acme/broken') throw new Unavailable('store', new Error('away'))
    return { outcome: 'counted' } as never
  }
  const refusals = openRefusalCounts({ change }, () => 0)
  for (let n = 0; n < 10_000; n++) refusals.count('acme/code', `key-${n % 2}`, n % 4 === 0 ? 'session_limit_reached' : 'rate_limited')
  refusals.count('acme/broken', 'key-1', 'plan_inactive')
  refusals.count('beta/code', 'key-1', 'plan_inactive')
  await t.rejects(refusals.flush(), Unavailable)
  t.match(changes, [
    ['acme/code', { op: 'countRefusals', id: /^[\w-]{8}$/, reasons: { session_limit_reached: 2500, rate_limited: 7500 }, keys: { 'key-0': 5000, 'key-1': 5000 } }],
    ['acme/broken', { reasons: { plan_inactive: 1 } }],
  ])
  await refusals.flush()
  await refusals.flush()
  t.match(changes.slice(2), [['beta/code', { reasons: { plan_inactive: 1 } }]])
  t.equal(changes.length, 3)
})

/** A periodic task does not keep the process alive. */
function stayAlive(t: Test): void {
  const timer = setInterval(() => {}, MINUTE)
  t.teardown(() => clearInterval(timer))
}

t.test('a periodic task runs one at a time, again after an error, and a last time at the end', async (t) => {
  stayAlive(t)
  const errors: unknown[] = []
  let runs = 0
  let running = 0
  let most = 0
  const third = Promise.withResolvers<void>()
  const task = periodicTask(1, async () => {
    most = Math.max(most, ++running)
    await new Promise(setImmediate)
    running--
    if (++runs === 1) throw new Error('first')
    if (runs === 3) third.resolve()
  }, (error) => errors.push(error))
  await task.start()
  await third.promise
  await task.stop()
  const atEnd = runs
  t.ok(atEnd > 3, 'a last time')
  t.equal(most, 1)
  t.match(errors, [{ message: 'first' }])
})

t.test('a periodic task that has just failed is not run again at the end', async (t) => {
  stayAlive(t)
  const failed = Promise.withResolvers<unknown>()
  let runs = 0
  const task = periodicTask(1, async () => {
    runs++
    await new Promise(setImmediate)
    throw new Error('away')
  }, failed.resolve)
  await task.start()
  t.match(await failed.promise, { message: 'away' })
  const before = runs
  await task.stop()
  t.equal(runs, before)
})
