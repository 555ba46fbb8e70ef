/** Concurrency of webhook deliveries: per tenant and receiver, by how the receiver answers. */
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { openConcurrencyLimits, sharesOf } from '../../plugins/dispatcher/concurrency-limits.ts'
import type { Attempted } from '../../plugins/dispatcher/delivery-attempt.ts'
import { openStore } from '../../src/backends/store/store.ts'
import { delivery, T0, task, taskId } from '../contracts/store/acme.ts'
import { openReceiver } from '../fakes/receiver.ts'
import type { Delivery } from '../../src/domain/task.ts'
import { bearer } from './gateway.ts'
import { openStudio } from './studio.ts'

const FAST: Attempted = { outcome: 'delivered', attempt: 1, final: true, lagMs: 0, durationMs: 999 }
const SLOW: Attempted = { ...FAST, durationMs: 1000 }
const FAILED: Attempted = { ...FAST, outcome: 'failed', durationMs: 1 }
const QUEUE = { tenant: 'acme', host: 'hooks.example' }
const many = (length: number, attempted: Attempted) => Array.from({ length }, () => attempted)

t.test('the concurrency to a receiver grows from 4 to 64 while answers are fast, and halves after a slow one or a failure', async (t) => {
  const limits = openConcurrencyLimits(() => 0)
  const after = (...attempts: Attempted[]) => {
    for (const attempted of attempts) limits.learn(QUEUE, attempted)
    return limits.of(QUEUE)
  }
  t.equal(after(), 4)
  t.equal(after(FAST), 5)
  t.equal(after(...many(100, FAST)), 64)
  t.equal(after({ ...FAILED, outcome: 'returned' }, { ...SLOW, outcome: 'lost' }), 64, 'an attempt that was cut off tells nothing')
  t.equal(after(SLOW), 32)
  t.equal(after(FAILED), 16)
  t.equal(after(FAST), 17)
  t.equal(after(...many(9, FAILED)), 4)
})

t.test('what was learned of a receiver holds for one tenant, and for a minute after its last answer', async (t) => {
  let now = 0
  const limits = openConcurrencyLimits(() => now)
  limits.learn(QUEUE, FAST)
  t.equal(limits.of({ ...QUEUE, tenant: 'globex' }), 4)
  t.equal(limits.of({ ...QUEUE, host: 'other.example' }), 4)
  now = 59_999
  t.equal(limits.of(QUEUE), 5)
  limits.learn(QUEUE, FAST)
  now = 119_998
  t.equal(limits.of(QUEUE), 6)
  now++
  t.equal(limits.of(QUEUE), 4)
})

t.test('a receiver that answers fast gets more deliveries at once, up to 64', async (t) => {
  const receiver = await openReceiver(t)
  let wave = Promise.withResolvers<void>()
  receiver.always(() => ({ until: wave.promise }))
  const studio = await openStudio(t)
  const { host } = new URL(receiver.url)
  for (let n = 0; n < 252; n++) {
    await studio.store.createTask(task(n, { state: 'completed' }))
    await studio.store.relay(taskId(n), [delivery(n, { host, url: receiver.url, keyVersionId: studio.keyVersionId, nextAttemptAt: 0 })], [])
  }
  // Each wave is answered once it is there as a whole: one more place for each answer of the wave before.
  for (const [arrived, atOnce] of [[4, 4], [12, 8], [28, 16], [60, 32], [124, 64], [188, 64], [252, 64]] as const) {
    await receiver.arrived(arrived)
    const inFlight = receiver.received.length - arrived + atOnce
    t.equal(inFlight, atOnce)
    const { resolve } = wave
    wave = Promise.withResolvers()
    resolve()
  }
})

t.test('the hanging receivers of ten tenants, or of forty, leave slots to a tenant that comes later', async (t) => {
  const folder = t.testdir()
  for (const hanging of [10, 40]) {
    const store = await openStore(`sqlite:${folder}/${hanging}.db`)
    t.teardown(() => store.close())
    const SLOTS = 1_000
    let inFlight = 0
    const look = async (): Promise<string[]> => {
      const taken: string[] = []
      for (let isCut = true; isCut && inFlight < SLOTS;) {
        const shares = sharesOf(SLOTS - inFlight)
        const claimed = await store.claimDeliveries(T0, T0 + 60_000, { ...shares, perHost: 128, perQueue: 4 })
        inFlight += claimed.length
        taken.push(...claimed.map(({ tenant }) => tenant))
        isCut = claimed.length === shares.limit
      }
      return taken
    }
    const due = async (tenant: string, from: number, count: number) => {
      await store.createTask(task(from, { tenant, state: 'completed' }))
      const made = Array.from({ length: count }, (_, n) => delivery(from + n, { tenant, taskId: taskId(from), host: `${tenant}-${Math.floor(n / 4)}.example` }))
      await store.relay(taskId(from), made, [])
    }
    for (let n = 0; n < hanging; n++) await due(`hangs-${n}`, 1000 * (n + 1), 120)
    await look()
    await due('honest', 90_000, 40)
    const [before, served] = [inFlight, await look()]
    t.ok(before < SLOTS, `${hanging} tenants hold ${before} slots`)
    t.ok(served.filter((tenant) => tenant === 'honest').length >= 4, `${hanging}: ${served.length}`)
  }
})

t.test('one tenant alone has a hundred deliveries at once, and a claim never takes more than half of what is free', (t) => {
  t.same(sharesOf(1_000), { limit: 500, perTenant: 100 })
  t.same(sharesOf(800), { limit: 400, perTenant: 100 })
  t.same(sharesOf(100), { limit: 50, perTenant: 12 })
  t.same(sharesOf(1), { limit: 1, perTenant: 4 })
  t.end()
})

t.test('ten tenants whose receivers hang and who replay without end hold up no webhook of another tenant', async (t) => {
  const [hanging, receiver] = [await openReceiver(t), await openReceiver(t)]
  hanging.always(() => 'never')
  // None of their attempts ends while the test runs.
  const studio = await openStudio(t, { env: { WEBHOOK_TIMEOUT_SECONDS: '120' } })
  const { store, keyVersionId, time } = studio
  const due = async (first: number, tenant: string, made: Partial<Delivery>[]) => {
    await store.createTask(task(first, { tenant, state: 'completed' }))
    await store.relay(taskId(first), made.map((facts, n) => delivery(first + n, { tenant, taskId: taskId(first), keyVersionId, nextAttemptAt: 0, createdAt: time.now, ...facts })), [])
  }
  const failed = { state: 'failed', nextAttemptAt: null, attempts: [{ number: 1, at: time.now, durationMs: 1, statusCode: 500, error: 'status', responsePrefix: null }] } as const
  const tenants = Array.from({ length: 10 }, (_, n) => `hangs-${n}`)
  const made = (tenant: string) => Array.from({ length: 120 }, (_, n) => ({ host: `${tenant}-${n >> 2}.example`, url: hanging.url, ...(n % 2 === 0 ? {} : { ...failed, attempts: [...failed.attempts] }) }))
  for (const [n, tenant] of tenants.entries()) await due(1000 * (n + 1), tenant, made(tenant))

  let [isOver, replayed] = [false, 0]
  const { promise: allReplayed, resolve: replayedAll } = Promise.withResolvers<void>()
  const range = { since: new Date(time.now - 1000).toISOString(), until: new Date(time.now + 1000).toISOString() }
  const replays = tenants.map(async (tenant) => {
    const { raw } = await studio.key(studio.subscription, { tenant })
    while (!isOver) {
      const { count = 0 } = (await studio.app.inject({ method: 'POST', url: '/api/v1/deliveries/replay', headers: bearer(raw), payload: range })).json()
      replayed += count
      if (replayed >= 600) replayedAll()
      await pause(20)
    }
  })
  t.teardown(() => void (isOver = true))
  await hanging.arrived(600)
  await allReplayed
  await due(90_000, 'acme', Array.from({ length: 40 }, () => ({ host: new URL(receiver.url).host, url: receiver.url })))
  await receiver.arrived(40)
  isOver = true
  await Promise.all(replays)
  t.equal(replayed, 600, 'what had failed is due again once')
  t.ok(hanging.received.length >= 600 && hanging.received.length < 1_000, `they hold ${hanging.received.length} places`)
  for (const [n, tenant] of tenants.entries()) {
    const attempts = (await store.deliveries(taskId(1000 * (n + 1)))).flatMap((one) => one.attempts)
    t.equal(attempts.length, 60, `${tenant}: no attempt has ended since`)
  }
})
