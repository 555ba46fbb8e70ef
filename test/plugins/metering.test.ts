/** Admission queue, orphaned reservations, and admission over HTTP. */
import { PassThrough } from 'node:stream'
import t, { type Test } from 'tap'
import { DEAD_MS } from '../../plugins/metering/gateway-heartbeat.ts'
import { reservationSweep } from '../../plugins/metering/orphaned-reservations.ts'
import { CONCURRENCY, openAdmissionQueue, type Block } from '../../plugins/metering/admission-queue.ts'
import { openUnknownAdmissions, UNKNOWN_MS } from '../../plugins/metering/unknown-admissions.ts'
import type { Store } from '../../src/backends/store/store.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import { bearer, CODING, openGateway, START } from './gateway.ts'

/** A client that does not disconnect. */
const connected = new PassThrough()
/** No second try without a notification. */
const NEVER_MS = 3_600_000

/** A queue over a plan whose room for requests and tokens the test sets: `window`, and by the key's name. Every request gets what it needs, or is blocked. */
function openRoom(room: Record<string, number>, maxMs = 10_000) {
  const time = { now: 0 }
  const queue = openAdmissionQueue(() => time.now, maxMs, NEVER_MS)
  const served: string[] = []
  const tries: string[] = []
  const blockOf = (key: string, needs: number): Block | null => {
    if (room[CONCURRENCY] === 0) return { cause: CONCURRENCY, needs: 0, left: 0 }
    for (const cause of [key, 'window']) if (needs > (room[cause] ?? Infinity)) return { cause, needs, left: room[cause] ?? 0 }
    return null
  }
  return {
    time,
    room,
    served,
    tries,
    ask(name: string, needs = 1, key = 'key a', client: PassThrough = connected) {
      const attempt = async () => {
        tries.push(name)
        const block = blockOf(key, needs)
        if (block) return block
        for (const cause of [key, 'window']) if (cause in room) room[cause]! -= needs
        if (CONCURRENCY in room) room[CONCURRENCY]!--
        served.push(name)
        return null
      }
      return queue.admit({ subscription: 's', causes: ['window', key], client }, attempt, (block) => block)
    },
    other: (name: string) => queue.admit({ subscription: 'other', causes: [], client: connected }, async () => void served.push(name), () => null),
    async settle(more: Record<string, number>) {
      for (const [cause, amount] of Object.entries(more)) room[cause] = (room[cause] ?? 0) + amount
      queue.notify('s')
      await turns()
    },
  }
}

/** Long enough for whatever waits for nothing else. */
async function turns(): Promise<void> {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve))
}

/** Ends what still waits. */
function end(t: Test, { time, settle }: ReturnType<typeof openRoom>): void {
  t.teardown(async () => {
    time.now = Infinity
    await settle({})
  })
}

t.test('a request that is not blocked does not wait', async (t) => {
  const { ask, tries } = openRoom({})
  t.equal(await ask('a'), null)
  t.same(tries, ['a'])
})

t.test('requests above the concurrency are admitted in FIFO order as others end, and new ones come last', async (t) => {
  const plan = openRoom({ [CONCURRENCY]: 0 })
  const waiting = ['a', 'b', 'c'].map((name) => plan.ask(name))
  await turns()
  await plan.settle({ [CONCURRENCY]: 1 })
  t.same(plan.served, ['a'])
  plan.room[CONCURRENCY] = 1
  const last = plan.ask('d')
  await turns()
  t.same(plan.served, ['a'], 'a new one does not overtake')
  await plan.settle({ [CONCURRENCY]: 3 })
  await Promise.all([...waiting, last])
  t.same(plan.served, ['a', 'b', 'c', 'd'])
})

t.test('a queue does not block other subscriptions, and a disconnect ends a wait', async (t) => {
  const plan = openRoom({ [CONCURRENCY]: 0 })
  const client = new PassThrough()
  const waiting = plan.ask('a', 1, 'key a', client)
  await plan.other('b')
  t.same(plan.served, ['b'])
  client.destroy()
  t.match(await waiting, { cause: CONCURRENCY })
})

t.test('the wait ends with the last result after maxMs', async (t) => {
  const plan = openRoom({ [CONCURRENCY]: 0 })
  const waiting = plan.ask('a')
  await turns()
  plan.time.now = 10_000
  await plan.settle({})
  t.match(await waiting, { cause: CONCURRENCY })
})

t.test('a key whose own tokens are reserved holds up no other key of the plan', async (t) => {
  const plan = openRoom({ 'key a': 0, window: 100 })
  end(t, plan)
  for (let i = 0; i < 3; i++) void plan.ask(`a${i}`, 10, 'key a')
  await turns()
  plan.time.now = 9_000
  await plan.ask('b', 10, 'key b')
  t.same(plan.served, ['b'])
  await plan.settle({ 'key a': 10 })
  t.same(plan.served, ['b', 'a0'])
})

t.test('a request that was blocked by the concurrency waits for its key then, and lets others pass', async (t) => {
  const plan = openRoom({ [CONCURRENCY]: 0, 'key a': 0, window: 100 })
  end(t, plan)
  void plan.ask('a', 10, 'key a')
  void plan.ask('b', 10, 'key b')
  await turns()
  await plan.settle({ [CONCURRENCY]: 5 })
  t.same(plan.served, ['b'])
})

t.test('a request that needs more than is left lets smaller ones pass for half of its time, and then gets what they leave', async (t) => {
  const plan = openRoom({ window: 50 })
  end(t, plan)
  const large = plan.ask('large', 80)
  await turns()
  await plan.ask('small 1', 20)
  plan.time.now = 4_999
  await plan.ask('small 2', 20)
  plan.time.now = 5_000
  void plan.ask('small 3', 5)
  await turns()
  t.same(plan.served, ['small 1', 'small 2'], 'the others wait for it now')
  await plan.settle({ window: 60 })
  t.same(plan.served, ['small 1', 'small 2'], 'also when another one would fit')
  await plan.settle({ window: 20 })
  await large
  t.same(plan.served, ['small 1', 'small 2', 'large', 'small 3'])
})

t.test('large requests, one after the other, hold up smaller ones for half of the time at most', async (t) => {
  const plan = openRoom({ window: 50 })
  end(t, plan)
  const since = new Map<number, number>()
  let longest = 0
  for (let second = 0; second < 120; second++) {
    plan.time.now = second * 1000
    void plan.ask(`large ${second}`, 80)
    since.set(second, second)
    void plan.ask(`small ${second}`, 1)
    await plan.settle({})
    for (const [asked] of since)
      if (plan.served.includes(`small ${asked}`)) {
        longest = Math.max(longest, second - asked)
        since.delete(asked)
      }
    plan.room['window'] = 50
  }
  t.ok(longest > 0, 'the large ones did hold them up')
  t.ok(longest <= 5, `the longest wait was ${longest} s`)
  t.ok(since.size <= 6, `${since.size} wait at the end`)
})

t.test('a settlement costs one try for each cause, however many wait', async (t) => {
  const plan = openRoom({ window: 0, 'key a': 0 })
  end(t, plan)
  for (let i = 0; i < 100; i++) void plan.ask(`${i}`, 10, i % 2 === 0 ? 'key a' : 'key b')
  await turns()
  plan.tries.length = 0
  await plan.settle({})
  t.same(plan.tries, ['0', '1'])
})

t.test('at most a thousand wait; one more is tried once', async (t) => {
  const plan = openRoom({ [CONCURRENCY]: 0 })
  end(t, plan)
  for (let i = 0; i < 1_000; i++) void plan.ask(`${i}`)
  await turns()
  t.match(await plan.ask('more'), { cause: CONCURRENCY })
})

t.test('reservations of a gateway without a new heartbeat for 45 s are charged at their estimate, those of a live one are kept', async (t) => {
  const gateway = await openGateway(t, () => {})
  const id = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const admit = (name: string, instance: string) =>
    gateway.store.change(id, { op: 'admit', id: name, instance, keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, START)
  await admit('a', 'dead')
  await admit('b', 'alive')
  const sweep = reservationSweep(gateway.store, 'me')
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
  t.equal(await reservationSweep(gateway.store, 'me').expireOthers(START), 2)
  t.same(Object.keys((await gateway.store.subscription(id))?.coding?.reservations ?? {}), ['me'])
  t.notOk((await gateway.store.heartbeats()).some(({ instance }) => instance === 'killed'))
})

t.test('reservations of a killed process that the store did not let expire at the start are expired later, and nothing is read after that', async (t) => {
  const gateway = await openGateway(t, () => {})
  const id = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  await gateway.store.change(id, { op: 'admit', id: 'a', instance: 'killed', keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, START)
  let [changes, reads] = [0, 0]
  const change = ((...args: Parameters<typeof gateway.store.change>) => (changes++ === 0 ? Promise.reject(new Unavailable('store', new Error('no answer'))) : gateway.store.change(...args))) as typeof gateway.store.change
  const subscriptionsWith: typeof gateway.store.subscriptionsWith = (...args) => (reads++, gateway.store.subscriptionsWith(...args))
  const sweep = reservationSweep({ ...gateway.store, change, subscriptionsWith }, 'me')
  t.same([await sweep.expireOthers(START), await sweep.expireOthers(START), await sweep.expireOthers(START), await sweep.expireOthers(START)], [0, 1, 0, 0])
  t.same((await gateway.store.subscription(id))?.coding?.reservations, {})
  t.equal(reads, 2)
})

t.test('a gateway with reservations and no heartbeat is dead after 45 s', async (t) => {
  const gateway = await openGateway(t, () => {})
  const id = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  await gateway.store.change(id, { op: 'admit', id: 'a', instance: 'silent', keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, START)
  const sweep = reservationSweep(gateway.store, 'me')
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
  const sweep = reservationSweep(gateway.store, 'me')
  await sweep.expireDead(START)
  t.equal(await sweep.expireDead(START + 10 * DEAD_MS), 0)
})

t.test('an own reservation of an unknown admission is released after a moment, and those in flight are kept', async (t) => {
  const gateway = await openGateway(t, () => {})
  const id = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  for (const name of ['known', 'lost']) {
    await gateway.store.change(id, { op: 'admit', id: name, instance: 'me', keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, START)
  }
  const unknown = openUnknownAdmissions(gateway.store, 'me', (name) => name === 'known')
  unknown.add(id, START)
  t.equal(await unknown.release(START + UNKNOWN_MS - 1), 0)
  t.equal(await unknown.release(START + UNKNOWN_MS), 1)
  t.same(Object.keys((await gateway.store.subscription(id))?.coding?.reservations ?? {}), ['known'])
})

t.test('a gateway that stops charges nothing for an admission whose outcome it does not know', async (t) => {
  const gateway = await openGateway(t, (app) => void app.post('/v1/work', { config: { api: 'coding', creates: true, admits: () => ({ promptBytes: 0, maxOutputTokens: 10 }) } }, async () => ({})))
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const { raw } = await gateway.key(subscription)
  const { decide } = gateway.store
  gateway.store.decide = (async (...args: Parameters<Store['decide']>) => {
    const decided = await decide(...args)
    await decided.durable
    if (decided.answer.outcome !== 'admitted') return decided
    throw new Unavailable('store', new Error('no answer'))
  }) as Store['decide']
  t.equal((await gateway.app.inject({ method: 'POST', url: '/v1/work', headers: bearer(raw), payload: {} })).statusCode, 503)
  const coding = async () => (await gateway.store.subscription(subscription))?.coding
  t.equal(Object.keys((await coding())?.reservations ?? {}).length, 1)
  await gateway.app.close()
  t.same(Object.keys((await coding())?.reservations ?? {}), [])
  t.equal((await coding())?.session?.used, 0)
})

t.test('a write of an unknown admission that takes effect late is released as well, as long as it can', async (t) => {
  const gateway = await openGateway(t, () => {})
  const id = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const admit = (name: string, now: number) =>
    gateway.store.change(id, { op: 'admit', id: name, instance: 'me', keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, now)
  const { store, reads } = countingReads(gateway.store)
  const unknown = openUnknownAdmissions(store, 'me', () => false)
  unknown.add(id, START)
  let now = START
  for (; reads.length < 2; now += 1_000) t.equal(await unknown.release(now), 0)
  // Nobody has written the record meanwhile, so that the write may still replace it.
  await admit('late', now)
  let released = 0
  for (; reads.length < 5 && now < START + 3_600_000; now += 1_000) released += await unknown.release(now)
  t.equal(released, 1)
  const before = reads.length
  for (; now < START + 7_200_000; now += 60_000) await unknown.release(now)
  t.ok(reads.length <= before + 1, 'once another write has replaced the record, it is not read again')
})

t.test('a second unknown admission is fenced by a version that was read after it, not by one from before', async (t) => {
  const gateway = await openGateway(t, () => {})
  const id = await gateway.plan('coder', { product: 'Coding', coding: CODING })
  const { store, reads } = countingReads(gateway.store)
  const unknown = openUnknownAdmissions(store, 'me', () => false)
  unknown.add(id, START)
  let now = START
  for (; reads.length < 1; now += 1_000) t.equal(await unknown.release(now), 0)
  // Its write has read what this one stores, so that it may still replace it.
  await gateway.plan('coder', { product: 'Coding', coding: CODING }, 2)
  unknown.add(id, now)
  for (; reads.length < 2; now += 1_000) t.equal(await unknown.release(now), 0)
  await gateway.store.change(id, { op: 'admit', id: 'late', instance: 'me', keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, now)
  let released = 0
  for (const until = now + 3_600_000; now < until; now += 1_000) released += await unknown.release(now)
  t.equal(released, 1)
})

/** Notes the subscriptions whose records are read. */
function countingReads(store: Store): { store: Store; reads: string[] } {
  const reads: string[] = []
  const counted: Store = {
    ...store,
    subscription: (id) => (reads.push(id), store.subscription(id)),
    subscriptionsWith: async (...args) => {
      const found = await store.subscriptionsWith(...args)
      reads.push(...found.map(({ id }) => id))
      return found
    },
  }
  return { store: counted, reads }
}

t.test('of 500 plans with requests in flight, a gateway reads those records alone to which its own admissions are unknown', async (t) => {
  const gateway = await openGateway(t, () => {})
  const ids: string[] = []
  for (let n = 0; n < 500; n++) ids.push(await gateway.plan(`coder-${n}`, { product: 'Coding', coding: CODING }))
  await Promise.all(ids.map((id, n) => gateway.store.change(id, { op: 'admit', id: `r${n}`, instance: 'other', keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 }, START)))
  await gateway.store.heartbeat('other', 1)
  const { store, reads } = countingReads(gateway.store)
  const unknown = openUnknownAdmissions(store, 'me', () => false)
  for (const id of ids.slice(0, 3)) for (let n = 0; n < 100; n++) unknown.add(id, START)
  for (let ms = 0; ms <= UNKNOWN_MS; ms += 1_000) await unknown.release(START + ms)
  t.same(reads.sort(), ids.slice(0, 3).sort())
  // The one gateway that sweeps for all.
  reads.length = 0
  const sweep = reservationSweep(store, 'me')
  for (let ms = 0; ms < 10_000; ms += 1_000) {
    await gateway.store.heartbeat('other', ms + 2)
    await sweep.expireDead(START + ms)
  }
  t.equal(reads.length, 2 * 500, 'every five seconds')
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
