/** Admission queue, orphaned reservations, and admission over HTTP. */
import { PassThrough } from 'node:stream'
import t from 'tap'
import { reservationSweep, DEAD_MS, UNKNOWN_MS } from '../../plugins/metering/orphaned-reservations.ts'
import { openAdmissionQueue } from '../../plugins/metering/admission-queue.ts'
import { bearer, CODING, openGateway, START } from './gateway.ts'

/** A client that does not disconnect. */
const connected = new PassThrough()

/** Attempts that are blocked until `unblock`. */
function blockedAttempts() {
  let open = false
  const tries: string[] = []
  return {
    tries,
    attempt: (name: string) => async () => {
      tries.push(name)
      return open
    },
    unblock: () => {
      open = true
    },
  }
}
const blocked = (answer: boolean) => !answer

t.test('an attempt that is not blocked does not wait', async (t) => {
  const { attempt, unblock, tries } = blockedAttempts()
  unblock()
  t.equal(await openAdmissionQueue(() => 0).admit('s', attempt('a'), blocked, connected), true)
  t.same(tries, ['a'])
})

t.test('waiting requests are admitted in FIFO order after a notification', async (t) => {
  const { attempt, unblock } = blockedAttempts()
  const queue = openAdmissionQueue(() => 0, 10_000, 3_600_000)
  const served: string[] = []
  const waiting = ['a', 'b', 'c'].map((name) => queue.admit('s', attempt(name), blocked, connected).then(() => served.push(name)))
  await new Promise((resolve) => setImmediate(resolve))
  t.same(served, [])
  unblock()
  queue.notify('s')
  await Promise.all(waiting)
  t.same(served, ['a', 'b', 'c'])
})

t.test('a queue does not block other subscriptions', async (t) => {
  const { attempt } = blockedAttempts()
  const client = new PassThrough()
  const queue = openAdmissionQueue(() => 0, 10_000, 3_600_000)
  const waiting = queue.admit('s', attempt('a'), blocked, client)
  t.equal(await queue.admit('other', async () => true, blocked, connected), true)
  client.destroy()
  t.equal(await waiting, false, 'a disconnect ends the wait')
})

t.test('the wait ends with the last result after maxMs', async (t) => {
  let now = 0
  const { attempt } = blockedAttempts()
  const queue = openAdmissionQueue(() => now, 10_000, 3_600_000)
  const waiting = queue.admit('s', attempt('a'), blocked, connected)
  await new Promise((resolve) => setImmediate(resolve))
  now = 10_000
  queue.notify('s')
  t.equal(await waiting, false)
})

t.test('reservations of a gateway without a new heartbeat for 45 s are charged at their estimate, those of a live one are kept', async (t) => {
  const gateway = await openGateway(t, () => {})
  const id = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const admit = (name: string, instance: string) =>
    gateway.store.change(id, { op: 'admit', id: name, instance, keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, START)
  await admit('a', 'dead')
  await admit('b', 'alive')
  const sweep = reservationSweep(gateway.store, 'me', () => true)
  await gateway.store.heartbeat('dead', 1)
  for (let ms = 0; ms < DEAD_MS; ms += 5_000) {
    await gateway.store.heartbeat('alive', ms)
    t.equal(await sweep.expireDead(START + ms), 0)
  }
  await gateway.store.heartbeat('alive', DEAD_MS)
  t.equal(await sweep.expireDead(START + DEAD_MS), 1)
  t.same(Object.keys((await gateway.store.subscription(id))?.coding?.reservations ?? {}), ['b'])
  t.equal((await gateway.store.subscription(id))?.coding?.weekly.used, 100)
  t.notOk((await gateway.store.heartbeats()).some(({ instance }) => instance === 'dead'), 'its heartbeat is deleted')
})

t.test('a process alone with its store expires all reservations of earlier processes at once, and keeps its own', async (t) => {
  const gateway = await openGateway(t, () => {})
  const id = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  for (const instance of ['killed', 'silent', 'me']) {
    await gateway.store.change(id, { op: 'admit', id: instance, instance, keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, START)
  }
  await gateway.store.heartbeat('killed', 1)
  await gateway.store.heartbeat('me', 1)
  t.equal(await reservationSweep(gateway.store, 'me', () => true).expireOthers(START), 2)
  t.same(Object.keys((await gateway.store.subscription(id))?.coding?.reservations ?? {}), ['me'])
  t.notOk((await gateway.store.heartbeats()).some(({ instance }) => instance === 'killed'))
})

t.test('a gateway with reservations and no heartbeat is dead after 45 s', async (t) => {
  const gateway = await openGateway(t, () => {})
  const id = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  await gateway.store.change(id, { op: 'admit', id: 'a', instance: 'silent', keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, START)
  const sweep = reservationSweep(gateway.store, 'me', () => true)
  let expired = 0
  for (let ms = 0; ms <= DEAD_MS + 5_000; ms += 5_000) {
    expired += await sweep.expireDead(START + ms)
    if (ms < DEAD_MS) t.equal(expired, 0)
  }
  t.equal(expired, 1)
})

t.test('a gap between sweeps declares no gateway dead', async (t) => {
  const gateway = await openGateway(t, () => {})
  const id = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  await gateway.store.change(id, { op: 'admit', id: 'a', instance: 'slow', keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, START)
  await gateway.store.heartbeat('slow', 1)
  const sweep = reservationSweep(gateway.store, 'me', () => true)
  await sweep.expireDead(START)
  t.equal(await sweep.expireDead(START + 10 * DEAD_MS), 0)
})

t.test('an own reservation that is not in flight is released after 30 s', async (t) => {
  const gateway = await openGateway(t, () => {})
  const id = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  for (const name of ['known', 'lost']) {
    await gateway.store.change(id, { op: 'admit', id: name, instance: 'me', keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, START)
  }
  const sweep = reservationSweep(gateway.store, 'me', (name) => name === 'known')
  t.equal(await sweep.releaseOwn(START + UNKNOWN_MS - 1), 0)
  t.equal(await sweep.releaseOwn(START + UNKNOWN_MS), 1)
  t.same(Object.keys((await gateway.store.subscription(id))?.coding?.reservations ?? {}), ['known'])
})

t.test('a request above the plan\'s concurrency waits in the queue and is then admitted', async (t) => {
  const release = Promise.withResolvers<void>()
  const first = Promise.withResolvers<void>()
  const gateway = await openGateway(t, (app) => {
    app.post('/v1/work', { config: { api: 'coding', creates: true, admits: () => ({ promptBytes: 0, maxOutputTokens: 10 }) } }, async (request) => {
      if (request.headers['x-first']) {
        first.resolve()
        await release.promise
      }
      return { done: true }
    })
  })
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: { ...CODING, maxConcurrentRequests: 1 } })
  const { raw } = await gateway.key(subscription)
  const work = (headers = {}) => gateway.app.inject({ method: 'POST', url: '/v1/work', headers: { ...bearer(raw), ...headers }, payload: {} })
  const one = work({ 'x-first': 'yes' })
  await first.promise
  const two = work()
  release.resolve()
  t.same([(await one).statusCode, (await two).statusCode], [200, 200])
})
