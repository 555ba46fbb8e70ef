/** The store's clock in a process whose own clock is wrong, leaps, or is set right. */
import pino from 'pino'
import { Registry } from 'prom-client'
import t, { type Test } from 'tap'
import { openBackends } from '../../src/bootstrap/open-backends.ts'
import { openStoreClock } from '../../src/bootstrap/store-clock.ts'
import { readConfig } from '../../src/config/config.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import { hold, mediaPlan, taskId } from '../contracts/store/acme.ts'

const T0 = Date.UTC(2026, 0, 5)
const HOUR_MS = 3_600_000

const VERBS = { change: async () => 'written', subscription: async () => 'read', session: async () => 'read', close: async () => 'closed' }

/** A store's clock and this machine's two clocks, which a test sets. */
async function open(t: Test, wallMs = T0, answersAfterMs = 0) {
  const time = { server: T0, wall: wallMs, monotonic: 50_000, answers: true, answersAfterMs }
  const pass = (ms: number) => {
    for (const name of ['server', 'wall', 'monotonic'] as const) time[name] += ms
  }
  const lines: string[] = []
  const registry = new Registry()
  const clock = await openStoreClock(
    {
      clock: async () => {
        if (!time.answers) throw new Unavailable('store', new Error('no answer'))
        const told = time.server
        pass(time.answersAfterMs)
        return told
      },
    },
    { log: pino({ level: 'info' }, { write: (line) => void lines.push(line) }), registry, wall: () => time.wall, monotonic: () => time.monotonic },
  )
  t.teardown(() => clock.close())
  const events = (event: string) => lines.filter((line) => line.includes(`"event":"${event}"`)).length
  return { clock, time, pass, events, metrics: () => registry.metrics(), guarded: clock.guard(VERBS as never) as unknown as typeof VERBS }
}

t.test('time is the store\'s, whatever the clock of the machine is set to', async (t) => {
  const { clock, time, pass, metrics } = await open(t, T0 - 4_000)
  t.equal(clock.now(), T0)
  t.match(clock.check(), { name: 'clock', ok: true })
  t.match(await metrics(), 'tollgate_clock_skew_seconds 4')
  pass(10_000)
  time.wall += 40 * 24 * HOUR_MS
  t.equal(clock.now(), T0 + 10_000)
})

t.test('a process more than five seconds off is not ready, reads, writes nothing, and logs it once', async (t) => {
  for (const skewMs of [HOUR_MS, -HOUR_MS]) {
    const { clock, time, guarded, events, metrics } = await open(t, T0 + skewMs)
    t.match(clock.check(), { ok: false, detail: "the clock of this machine differs from the store's by 3600.0 s" })
    await t.rejects(async () => void (await guarded.change()), Unavailable)
    t.equal(await guarded.subscription(), 'read')
    t.equal(await guarded.session(), 'read', 'people stay signed in')
    t.equal(await guarded.close(), 'closed')
    t.equal(events('clock_skew'), 1)
    t.match(await metrics(), `tollgate_clock_skew_seconds ${-skewMs / 1000}`)
    t.throws(() => clock.writeTime(), Unavailable, 'nor does a change that was queued before')
    time.wall = T0
    t.equal(clock.writeTime(), T0)
    t.equal(await guarded.change(), 'written', 'as soon as the clock is right')
  }
})

t.test('a clock that leaps stops the writes at once, before anything was measured', async (t) => {
  const { clock, time, guarded } = await open(t)
  t.equal(await guarded.change(), 'written')
  time.wall += 6_000
  await t.rejects(async () => void (await guarded.change()), Unavailable)
  t.equal(clock.check().ok, false)
})

t.test('a process to which the store told its time too late writes nothing until it is measured again', async (t) => {
  const { clock, time, guarded, events } = await open(t, T0, 8_000)
  t.equal(clock.now(), T0 + 4_000, 'half of the eight seconds behind')
  t.match(clock.check(), { ok: false, detail: "the store's clock is not known: the store took 8.0 s to tell it" })
  await t.rejects(async () => void (await guarded.change()), Unavailable)
  t.same([events('store_clock_unknown'), events('clock_skew')], [1, 0])
  time.answersAfterMs = 200
  await t.rejects(async () => void (await guarded.change()), Unavailable)
  while (!clock.check().ok) await new Promise((resolve) => setImmediate(resolve))
  t.equal(await guarded.change(), 'written')
  t.ok(Math.abs(clock.now() - time.server) <= 100)
  t.equal(events('clock_skew_resolved'), 1)
})

t.test('where the store\'s clock leapt with the machine\'s, the refused write measures again and the next one is written', async (t) => {
  const { clock, time, guarded } = await open(t)
  time.wall += HOUR_MS
  time.server += HOUR_MS
  await t.rejects(async () => void (await guarded.change()), Unavailable)
  while (!clock.check().ok) await new Promise((resolve) => setImmediate(resolve))
  t.equal(await guarded.change(), 'written')
  t.equal(clock.now(), T0 + HOUR_MS)
})

t.test('while the store does not answer, the last measurement counts', async (t) => {
  const { clock, time, guarded, pass } = await open(t, T0 + HOUR_MS)
  time.answers = false
  await t.rejects(async () => void (await guarded.change()), Unavailable)
  pass(60_000)
  t.equal(clock.now(), T0 + 60_000)
})

t.test('the backends of a program whose clock is off are read and not written, and it is not ready', async (t) => {
  const { config } = readConfig({ DATA_DIR: t.testdir(), ROLE: 'all' })
  const time = { aheadMs: 0 }
  const surroundings = { config, log: pino({ level: 'silent' }), registry: new Registry(), wall: () => Date.now() + time.aheadMs }
  const { store, clock, close } = await openBackends(surroundings, (_name, open) => open())
  t.teardown(close)
  await store.change('acme/studio', mediaPlan(), clock.now())
  const before = await store.subscription('acme/studio')
  time.aheadMs = 40 * 24 * HOUR_MS
  t.match(clock.check(), { ok: false })
  await t.rejects(store.change('acme/studio', hold(taskId(1)), clock.now()), Unavailable)
  await t.rejects(store.heartbeat('gateway-1', 1), Unavailable)
  await t.rejects(store.takeLease('sweep', 'me', clock.now() + 1000, clock.now()), Unavailable)
  t.same(await store.subscription('acme/studio'), before)
  time.aheadMs = 0
  t.match(await store.change('acme/studio', hold(taskId(1)), clock.now()), { outcome: 'held' })
})

t.test('a program whose clock is off waits with its start until it is right, and says why', async (t) => {
  const { config } = readConfig({ DATA_DIR: t.testdir(), ROLE: 'all' })
  const time = { aheadMs: HOUR_MS }
  const waited: string[] = []
  const surroundings = { config, log: pino({ level: 'silent' }), registry: new Registry(), wall: () => Date.now() + time.aheadMs }
  const { store, clock, close } = await openBackends(surroundings, async (_name, open) => {
    for (;;) {
      try {
        return await open()
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error
        waited.push((error.cause as Error).message)
        time.aheadMs = 0
      }
    }
  })
  t.teardown(close)
  t.match(waited, [/^the clock of this machine differs from the store's by 3600\.0 s$/])
  t.match(await store.change('acme/studio', mediaPlan(), clock.now()), { outcome: 'applied' })
})
