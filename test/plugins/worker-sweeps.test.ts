import { mock } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { startSweeps } from '../../plugins/worker/sweep-loops.ts'
import type { Files } from '../../src/backends/files/files.ts'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { hold, keyVersion, mediaPlan, T0, task, taskId } from '../contracts/store/acme.ts'
import { openAway } from './unavailable-store.ts'

const COUNTS = [{ state: 'queued', kind: 'image', count: 3, oldestAt: 0 } as const]
const LEASE_MS = 30_000
const MINUTE = 60_000
const SILENT = { info() {}, warn() {}, error() {} }

/** Sweeps by what each second's request for the lease answers. `reported` has the open tasks as they were reported, `second` resolves after a pass. */
async function openTurns(t: Test, turns: (() => Promise<boolean>)[], tasksDue: () => Promise<never[]>) {
  mock.timers.enable({ apis: ['setInterval'] })
  t.teardown(() => mock.timers.reset())
  const reported: unknown[] = []
  const store = {
    takeLease: async (name: string) => name === 'sweep-tasks' && (await turns.shift()?.()) === true,
    tasksDue,
    subscriptionsDue: async () => [],
    openTasks: async () => COUNTS,
  } as unknown as Store
  const tasks = { store, clock: () => 0, publish() {}, log: SILENT } as unknown as TaskContext
  t.teardown(startSweeps({ tasks, files: {} as Files, owner: 'one', leaseMs: LEASE_MS, queueMs: 1e12, isServed: () => true, isAlone: true, uptime: () => 0, taskMs: 1, eventMs: 1, swept() {}, republished() {}, open: (counts) => void reported.push(counts), log: SILENT as never }))
  const second = async (): Promise<void> => {
    mock.timers.tick(1_000)
    for (let turn = 0; turn < 10; turn++) await nextTurn()
  }
  return { reported, second }
}

const [OURS, TAKEN, AWAY] = [async () => true, async () => false, () => Promise.reject(new Unavailable('store', null))]

t.test('only the worker that holds the sweep lease reports open tasks; the others clear their counts, and try again after the length of the lease', async (t) => {
  const { reported, second } = await openTurns(t, [OURS, TAKEN, OURS], async () => [])
  const seconds: number[] = []
  for (let at = 1; reported.length < 3; at++) {
    const before = reported.length
    await second()
    if (reported.length > before) seconds.push(at)
  }
  t.same(seconds, [1, 2, 7])
  t.same(reported, [COUNTS, [], COUNTS])
})

t.test('a worker that loses the store clears its counts, and one whose sweep fails goes on to report them', async (t) => {
  const { reported, second } = await openTurns(t, [OURS, OURS, AWAY, AWAY, OURS], AWAY)
  for (let at = 1; at <= 5; at++) await second()
  t.same(reported, [COUNTS, COUNTS, [], [], COUNTS])
})

t.test('the sealed key of an ended key is removed once no task needs it to sign webhooks', async (t) => {
  const { store, passAfter } = await openRetention(t, { eventMs: 60 * MINUTE })
  const isSealed = async (minutes: number): Promise<boolean> => {
    await passAfter(minutes)
    return (await store.keyVersions('k1'))[0]?.sealed !== null
  }
  await store.mintKey(keyVersion('k1', 0, { state: 'active' }))
  await store.createTask(task(1, { state: 'queued', sweepAt: null, createdAt: T0 + 8 * MINUTE }))
  await store.setKey('k1-0', { state: 'deleted', endedAt: T0 }, [])
  for (const passed of [30, 90]) {
    t.ok(await isSealed(passed), `a task that may have been asked for with it is there after ${passed} minutes`)
  }
  await store.moveTask(task(1).id, { from: ['queued'] }, 'failed', { endedAt: T0 + 90 * MINUTE })
  t.ok(await isSealed(90 + 59), 'its webhook may be sent again')
  t.notOk(await isSealed(90 + 61))
})

t.test('coding requests of a plan that is gone are removed after the retention of tasks', async (t) => {
  const { store, passAfter } = await openRetention(t, { eventMs: 1 })
  await store.logRequests([{ id: 'r1', subscription: 'gone/coder', keyId: 'k1', at: T0, durationMs: 1, status: 200, code: null, isComplete: true, usage: null, charged: null }])
  const left = async (minutes: number) => {
    await passAfter(minutes)
    return (await store.requests('gone/coder', null, 10)).length
  }
  t.same([await left(60), await left(61)], [1, 0])
})

/** A store whose tasks are kept for an hour. `passAfter` waits for a pass of the sweeps so many minutes after the start. */
async function openRetention(t: Test, { eventMs }: { eventMs: number }) {
  mock.timers.enable({ apis: ['setInterval'] })
  t.teardown(() => mock.timers.reset())
  const store = await openStore(`sqlite:${t.testdir()}/tollgate.db`)
  t.teardown(() => store.close())
  let now = T0
  let swept = 0
  const files = { sweep: async () => (swept++, 0) } as unknown as Files
  const tasks = { store, clock: () => now, log: SILENT } as unknown as TaskContext
  t.teardown(startSweeps({ tasks, files, owner: 'one', leaseMs: LEASE_MS, queueMs: 1e12, isServed: () => true, isAlone: true, uptime: () => 0, taskMs: 60 * MINUTE, eventMs, swept() {}, republished() {}, open() {}, log: SILENT as never }))
  const passAfter = async (minutes: number): Promise<void> => {
    now = T0 + minutes * MINUTE
    const before = swept
    mock.timers.tick(MINUTE)
    while (swept === before) await nextTurn()
  }
  return { store, passAfter }
}

/** Sweeps a store with two running tasks by a clock of seconds. The worker of the first renews its lease every 10 s while the store is reachable; that of the second is dead. */
async function openRuns(t: Test, isAlone = false) {
  mock.timers.enable({ apis: ['setInterval'] })
  t.teardown(() => mock.timers.reset())
  const store = await openStore(`sqlite:${t.testdir()}/tollgate.db`)
  t.teardown(() => store.close())
  let now = T0
  const claims = ['claim-1', 'claim-2']
  await store.change('acme/studio', mediaPlan(), T0)
  for (const [n, claim] of claims.entries()) {
    await store.change('acme/studio', hold(taskId(n)), T0)
    await store.createTask(task(n, { state: 'queued' }))
    await store.change('acme/studio', { op: 'claim', claim, kinds: ['image'] }, T0)
    await store.moveTask(taskId(n), { from: ['queued'] }, 'processing', { epoch: 2, attempts: 1, sweepAt: T0 + LEASE_MS })
  }
  const away = openAway(store, 'store')
  let passes = 0
  let stillMs = 0
  const openTasks = async () => {
    now += stillMs
    stillMs = 0
    passes++
    return []
  }
  // A pass that fails is not always logged.
  const takeLease: Store['takeLease'] = async (name, ...rest) => {
    try {
      return await away.backend.takeLease(name, ...rest)
    } catch (error) {
      if (name === 'sweep-tasks') passes++
      throw error
    }
  }
  const counted = { ...away.backend, openTasks, takeLease }
  const tasks = { store: counted, clock: () => now, publish() {}, log: SILENT } as unknown as TaskContext
  const stop = startSweeps({ tasks, files: { sweep: async () => 0 } as unknown as Files, owner: 'one', leaseMs: LEASE_MS, queueMs: 1e12, isServed: () => true, isAlone, uptime: () => now, taskMs: 1e12, eventMs: 1e12, swept() {}, republished() {}, open() {}, log: SILENT as never })
  t.teardown(stop)
  return {
    away,
    /** The process stands still within its next pass. */
    standStill: (ms: number) => void (stillMs = ms),
    stateOf: async (n: number) => (await store.task('acme', taskId(n)))?.state,
    async second(at: number): Promise<void> {
      now = T0 + at * 1000
      if (at % 10 === 0 && !away.isAway) await store.renewTask(taskId(0), 2, 0, now + LEASE_MS)
      const before = passes
      mock.timers.tick(1_000)
      while (passes === before) await nextTurn()
    },
  }
}

t.test('after an outage of the store that outlasts a lease, a living worker keeps its task, and that of a dead one is taken back a lease later', async (t) => {
  const { away, stateOf, second } = await openRuns(t, true)
  for (let at = 1; at <= 75; at++) {
    away.isAway = at > 4 && at < 44
    await second(at)
    if (!away.isAway) t.equal(await stateOf(0), 'processing', `the living one, after ${at} s`)
    if (!away.isAway) t.equal(await stateOf(1), at < 74 ? 'processing' : 'queued', `the dead one, after ${at} s`)
  }
})

t.test('a process that stood still in the midst of a pass takes no lease back for the time of one', async (t) => {
  const { standStill, stateOf, second } = await openRuns(t, true)
  standStill(39_000)
  await second(5)
  for (let at = 45; at <= 76; at++) {
    await second(at)
    t.equal(await stateOf(0), 'processing', `the living one, after ${at} s`)
    t.equal(await stateOf(1), at < 75 ? 'processing' : 'queued', `the dead one, after ${at} s`)
  }
})

t.test('without an outage a lease is taken back when it expires', async (t) => {
  const { stateOf, second } = await openRuns(t, true)
  for (let at = 1; at <= 31; at++) {
    await second(at)
    t.equal(await stateOf(0), 'processing')
    t.equal(await stateOf(1), at < 30 ? 'processing' : 'queued', `after ${at} s`)
  }
})

t.test('a process that has just started cannot know of an outage, and takes no lease back for the time of one', async (t) => {
  const { stateOf, second } = await openRuns(t)
  await second(35)
  t.equal(await stateOf(1), 'processing')
  for (let at = 36; at <= 65; at++) await second(at)
  t.equal(await stateOf(1), 'queued')
})
