import type { Test } from 'tap'
import type { Store } from '../../../src/backends/store/store.ts'
import type { DeliveryCaps } from '../../../src/backends/store/task-store.ts'
import type { Delivery, DeliveryAttempt } from '../../../src/domain/task.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { allDue, delivery, logged, T0, task, taskId } from './acme.ts'

const LEASE_MS = 1000
const RESULT = { file: 'f', contentType: 'image/png', bytes: 1, width: 1, height: 1, durationMs: null, expiresAt: T0 + 1000 }
const ALL = { since: T0 - 1, until: T0 + 1000, event: null, states: null }
const WIDE: DeliveryCaps = { limit: 1000, perHost: 1000, perTenant: 1000, perQueue: 1000 }

/** Stores final tasks with a delivery each. */
async function relayed(store: Store, deliveries: Delivery[]): Promise<void> {
  await Promise.all(deliveries.map((made, i) => store.createTask(task(i, { id: made.taskId, tenant: made.tenant, state: 'completed' }))))
  await Promise.all(deliveries.map((made) => store.relay(made.taskId, [made], [])))
}

function claim(store: Store, now = T0, caps: Partial<DeliveryCaps> = {}): Promise<Delivery[]> {
  return store.claimDeliveries(now, now + LEASE_MS, { ...WIDE, ...caps })
}

function attempt(number: number, facts: Partial<DeliveryAttempt> = {}): DeliveryAttempt {
  return { number, at: T0, durationMs: 12, statusCode: 500, error: 'status', responsePrefix: 'Oops', ...facts }
}

async function only(t: Test, claimed: Promise<Delivery[]>): Promise<Delivery> {
  const [one, ...more] = await claimed
  t.same(more, [])
  return one!
}

export const deliveryPromises: Promises<Place> = {
  'the events of a task are relayed once, and its outbox is cleared': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const outbox = [{ event: 'task.failed' as const, body: '{"a":1}' }, { event: 'task.refunded' as const, body: '{"b":2}' }]
    await store.createTask(task(1, { state: 'failed', outbox, sweepAt: T0 }))
    const failed = delivery(1, { event: 'task.failed', body: '{"a":1}' })
    const refunded = delivery(1, { event: 'task.refunded', body: '{"b":2}', state: 'waiting', nextAttemptAt: null })
    await Promise.all([store.relay(taskId(1), [failed, refunded], []), other.relay(taskId(1), [failed, refunded], [])])
    t.same(await store.deliveries(taskId(1)), [failed, refunded])
    t.same(await store.task('acme', taskId(1)), task(1, { state: 'failed', outbox: [], sweepAt: null, eventsLogged: true }))
    t.same(await allDue(store, T0), [])

    const claimed = await only(t, claim(other))
    t.equal(await other.recordAttempt(claimed.id, claimed.epoch, attempt(1), { state: 'delivered', nextAttemptAt: null }, null), 'recorded')
    await store.relay(taskId(1), [{ ...failed, nextAttemptAt: T0 + 5000 }, refunded], [])
    t.match(await store.deliveries(taskId(1)), [{ id: failed.id, state: 'delivered', attempts: [{ number: 1 }] }, { state: 'waiting' }])
    t.same(await claim(store, T0 + 10_000), [], 'a finished delivery is not created again')
  },

  'a task that settles is final in the write that stores its events and deliveries, once': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const settling = task(1, { state: 'settling', startedAt: T0, outcome: { outcome: 'completed', cost: 7, result: RESULT, at: T0 + 5 } })
    await store.createTask(settling)
    await store.createTask(task(2, { state: 'processing', startedAt: T0 }))
    const end = { state: 'completed', facts: { actualCost: 7, refundAmount: 39_993, endedAt: T0 + 5, progress: 100 } } as const
    const final = { ...settling, ...end.facts, state: end.state, sweepAt: null, eventsLogged: true }
    const relays = [store, other, store].map((handle) => handle.relay(taskId(1), [delivery(1)], [logged(1)], end))
    t.same((await Promise.all(relays)).filter((relayed) => relayed !== null), [final])
    t.equal(await other.relay(taskId(1), [delivery(1)], [logged(1)], { ...end, facts: { ...end.facts, actualCost: 0 } }), null, 'it does not settle any more')
    t.same(await other.task('acme', taskId(1)), final)
    t.same(await store.deliveries(taskId(1)), [delivery(1)])
    t.match(await other.events('acme', 0, 0, 10), [{ id: logged(1).id, position: 1 }])
    t.equal(await store.relay(taskId(2), [], [], end), null, 'it does not settle')
    t.match(await store.task('acme', taskId(2)), { state: 'processing', endedAt: null })
    t.equal(await store.relay(taskId(3), [], [], end), null, 'it is not there')
  },

  'a removed task gets no deliveries': async (t, place) => {
    const store = await place.open()
    await store.relay(taskId(1), [delivery(1)], [])
    t.same(await store.deliveries(taskId(1)), [])
    t.same(await claim(store), [])
  },

  'due deliveries are claimed, longest due first, and not while they are leased': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const made = [30, 10, 20].map((due, i) => delivery(i, { host: `h${i}.example`, nextAttemptAt: T0 + due }))
    await relayed(store, [...made, delivery(3, { nextAttemptAt: T0 + 5000 })])
    t.same(await claim(other, T0 + 9), [])
    const claimed = await claim(other, T0 + 40)
    t.same(claimed, [made[1]!, made[2]!, made[0]!].map((one) => ({ ...one, epoch: 1, leaseUntil: T0 + 40 + LEASE_MS })))
    t.same(await store.deliveries(taskId(1)), [claimed[0]])
    t.same(await claim(store, T0 + 39 + LEASE_MS), [])
  },

  'concurrent claims get every delivery exactly once': async (t, place) => {
    const handles = [await place.open(), await place.open()]
    await relayed(handles[0]!, Array.from({ length: 60 }, (_, i) => delivery(i, { host: `h${i % 7}.example`, tenant: `t${i % 5}` })))
    const claims = await Promise.all(Array.from({ length: 20 }, (_, i) => claim(handles[i % 2]!, T0, { limit: 4 })))
    const ids = claims.flat().map(({ id }) => id)
    t.equal(ids.length, 60)
    t.equal(new Set(ids).size, 60)
  },

  'deliveries that another process adds or claims between two claims are claimed once, the earliest first': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const timesOf = (claimed: Delivery[]) => claimed.map(({ nextAttemptAt }) => nextAttemptAt! - T0)
    await relayed(store, [10, 20, 30, 40].map((at, i) => delivery(i, { nextAttemptAt: T0 + at })))
    t.same(timesOf(await claim(store, T0 + 50, { limit: 1 })), [10])
    await relayed(other, [5, 35].map((at, i) => delivery(10 + i, { nextAttemptAt: T0 + at })))
    t.same(timesOf(await claim(store, T0 + 50, { limit: 1 })), [5])
    t.same(timesOf(await claim(other, T0 + 50, { limit: 1 })), [20])
    t.same(timesOf(await claim(store, T0 + 50)), [30, 35, 40])

    await relayed(store, [0, 1, 2, 3, 4, 5].map((i) => delivery(20 + i, { host: 'same.example' })))
    const claims: Delivery[][] = []
    // What one process read beyond its claim, the other has taken when it gets there.
    for (const process of [store, store, other, store, other]) claims.push(await claim(process, T0, { limit: 1 }))
    claims.push(await claim(store))
    t.same(claims.map(({ length }) => length), [1, 1, 1, 1, 1, 1])
    t.equal(new Set(claims.flat().map(({ id }) => id)).size, 6)
    t.equal((await claim(other, T0 + 50 + LEASE_MS)).length, 12, 'no queue was forgotten')
  },

  'concurrent claims keep the caps per receiver and tenant, and expired leases do not count': async (t, place) => {
    const handles = [await place.open(), await place.open(), await place.open()]
    await relayed(handles[0]!, Array.from({ length: 60 }, (_, i) => delivery(i, { host: `h${i % 4}.example`, tenant: `t${i % 3}` })))
    const caps = { limit: 5, perHost: 4, perTenant: 5 }
    const most = (claimed: Delivery[], by: 'host' | 'tenant') => Math.max(...Object.values(Object.groupBy(claimed, (one) => one[by])).map((all) => all?.length ?? 0))
    for (const now of [T0, T0 + LEASE_MS, T0 + 2 * LEASE_MS]) {
      const claimed = (await Promise.all(Array.from({ length: 9 }, (_, i) => claim(handles[i % 3]!, now, caps)))).flat()
      t.ok(most(claimed, 'host') <= 4 && most(claimed, 'tenant') <= 5)
      t.equal(new Set(claimed.map(({ id }) => id)).size, claimed.length)
      t.ok(claimed.length > 5, `${claimed.length} are leased, and no further slot is free`)
      t.same(await claim(handles[0]!, now, { ...caps, limit: 1, perTenant: 1 }), [], 'the caps may be lower in a later claim')
      // One attempt is recorded late, under the expired lease.
      const [late] = claimed
      t.equal(await handles[1]!.recordAttempt(late!.id, late!.epoch, attempt(1), { state: 'delivered', nextAttemptAt: null }, null), 'recorded')
    }
  },

  'a dead receiver occupies only its own slots, whatever its backlog': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const dead = Array.from({ length: 120 }, (_, i) => delivery(i, { host: 'dead.example', nextAttemptAt: T0 - 120 + i }))
    const alive = Array.from({ length: 5 }, (_, i) => delivery(200 + i, { host: 'alive.example', nextAttemptAt: T0 + i }))
    await relayed(store, [...dead, ...alive])
    const caps = { limit: 20, perHost: 8, perTenant: 32 }
    const hostsOf = (claimed: Delivery[]) => claimed.map(({ host }) => host.split('.')[0]).toSorted()
    t.same(hostsOf(await claim(store, T0, caps)), ['alive', ...Array<string>(8).fill('dead')])
    t.same(hostsOf(await claim(other, T0 + 2, caps)), ['alive', 'alive'], 'the cap is for all claims together')
    const last = await claim(store, T0 + 10, caps)
    t.same(hostsOf(last), ['alive', 'alive'])

    await other.recordAttempt(last[0]!.id, 1, attempt(1), { state: 'delivered', nextAttemptAt: null }, null)
    t.same(hostsOf(await claim(store, T0 + 10, caps)), [], 'a free slot of one receiver does not serve another')
    const held = (await Promise.all(dead.slice(0, 8).map(({ taskId: id }) => store.deliveries(id)))).flat()
    await store.recordAttempt(held[0]!.id, 1, attempt(1), { state: 'failed', nextAttemptAt: null }, null)
    await other.returnDelivery(held[1]!.id, 1, T0 + 9000)
    t.same((await claim(store, T0 + 10, caps)).map(({ id }) => id), [dead[8]!.id, dead[9]!.id], 'the next deliveries take the freed slots')
  },

  'a tenant occupies only its own slots, whatever its number of receivers': async (t, place) => {
    const store = await place.open()
    const many = Array.from({ length: 40 }, (_, i) => delivery(i, { host: `h${i}.example`, nextAttemptAt: T0 - 40 + i }))
    const shared = Array.from({ length: 4 }, (_, i) => delivery(50 + i, { host: `h${i}.example`, tenant: 'globex' }))
    await relayed(store, [...many, ...shared])
    const caps = { limit: 100, perHost: 1, perTenant: 6 }
    const claimed = await claim(store, T0, caps)
    t.same(claimed.map(({ id }) => id), many.slice(0, 6).map(({ id }) => id), 'h0 to h3 are full for the other tenant')
    await store.recordAttempt(claimed[3]!.id, 1, attempt(1), { state: 'delivered', nextAttemptAt: null }, null)
    t.same((await claim(store, T0 + 1, { ...caps, limit: 1 })).map(({ id }) => id), [many[6]!.id])
    t.same((await claim(store, T0 + 1, { ...caps, limit: 1 })).map(({ id }) => id), [shared[3]!.id], 'the full tenant does not block it')
  },

  'concurrent claims keep the cap of a tenant at a receiver, which leaves the other slots of the receiver to its neighbours': async (t, place) => {
    const handles = [await place.open(), await place.open()]
    const slow = Array.from({ length: 30 }, (_, i) => delivery(i, { host: 'shared.example', nextAttemptAt: T0 - 100 + i }))
    const elsewhere = [delivery(40, { host: 'h.example' })]
    const neighbours = Array.from({ length: 12 }, (_, i) => delivery(50 + i, { host: 'shared.example', tenant: `t${i % 2}`, nextAttemptAt: T0 + i }))
    await relayed(handles[0]!, [...slow, ...elsewhere, ...neighbours])
    const caps = { limit: 4, perHost: 12, perQueue: 3, queues: new Map([['t1 shared.example', 5]]) }
    const all = async (now: number) => (await Promise.all(Array.from({ length: 8 }, (_, i) => claim(handles[i % 2]!, now, caps)))).flat()
    const counted = (claimed: Delivery[]) => Object.fromEntries(Object.entries(Object.groupBy(claimed, ({ tenant, host }) => `${tenant} ${host}`)).map(([name, those]) => [name, those?.length]))
    const claimed = await all(T0 + 20)
    t.same(counted(claimed), { 'acme shared.example': 3, 'acme h.example': 1, 't0 shared.example': 3, 't1 shared.example': 5 })
    t.same(await all(T0 + 21), [])
    const [ended] = claimed.filter(({ tenant, host }) => tenant === 'acme' && host === 'shared.example')
    await handles[1]!.recordAttempt(ended!.id, 1, attempt(1), { state: 'delivered', nextAttemptAt: null }, null)
    t.same(counted(await all(T0 + 22)), { 'acme shared.example': 1 }, 'a freed slot is taken once')
    t.same(counted(await claim(handles[0]!, T0 + 23, { perQueue: 6 })), { 'acme shared.example': 3, 't0 shared.example': 3, 't1 shared.example': 1 }, 'a cap may grow')
  },

  'a tenant with a full receiver, or with later deliveries, does not block another': async (t, place) => {
    const store = await place.open()
    const early = [1, 2].map((n) => delivery(n, { host: 'dead.example', nextAttemptAt: T0 - 10 + n }))
    await relayed(store, [...early, delivery(3, { nextAttemptAt: T0 + 5000 }), delivery(4, { tenant: 'globex' })])
    const next = async (now: number) => (await claim(store, now, { limit: 1, perHost: 1 })).map(({ id }) => id)
    t.same(await next(T0), [early[0]!.id])
    t.same(await next(T0), [delivery(4).id])
    t.same(await next(T0), [])
  },

  'a delivery removed with its task does not block another': async (t, place) => {
    const store = await place.open()
    await relayed(store, [delivery(1, { host: 'gone.example' }), delivery(2, { nextAttemptAt: T0 + 10 })])
    await store.moveTask(taskId(1), { from: ['completed'] }, 'completed', { endedAt: T0 })
    t.equal(await store.removeTasks(T0 + 1, 10), 1)
    t.same((await claim(store, T0 + 10)).map(({ id }) => id), [delivery(2).id])
  },

  'claims are round-robin over the tenants': async (t, place) => {
    const store = await place.open()
    const backlog = Array.from({ length: 20 }, (_, i) => delivery(i, { host: `h${i}.example`, nextAttemptAt: T0 - 1000 + i }))
    const others = Array.from({ length: 4 }, (_, i) => delivery(50 + i, { tenant: `t${i}`, nextAttemptAt: T0 + i }))
    await relayed(store, [...backlog, ...others])
    const claimed = await claim(store, T0 + 10, { limit: 6 })
    const first = [backlog[0]!, ...others].map(({ id }) => id)
    t.same(claimed.map(({ id }) => id), [...first, backlog[1]!.id])
  },

  'a delivery with an expired lease is claimed under the next epoch, and a late attempt of the old one is lost': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await relayed(store, [delivery(1)])
    const crashed = await only(t, claim(store, T0, { perHost: 1 }))
    t.same(await claim(other, T0 + LEASE_MS - 1), [])
    const again = await only(t, claim(other, T0 + LEASE_MS, { perHost: 1 }))
    t.match(again, { id: crashed.id, epoch: 2, leaseUntil: T0 + 2 * LEASE_MS, attempts: [] })
    t.equal(await store.recordAttempt(crashed.id, 1, attempt(1), { state: 'delivered', nextAttemptAt: null }, null), 'lost')
    await store.returnDelivery(crashed.id, 1, T0)
    t.same(await store.deliveries(taskId(1)), [again])
    t.equal(await other.recordAttempt(crashed.id, 2, attempt(1), { state: 'delivered', nextAttemptAt: null }, null), 'recorded')
  },

  'an attempt is recorded once, also under an expired lease that nobody else has claimed': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await relayed(store, [delivery(1)])
    const claimed = await only(t, claim(store))
    const record = (handle: Store, one: DeliveryAttempt, state: 'pending' | 'failed', nextAttemptAt: number | null) =>
      handle.recordAttempt(claimed.id, claimed.epoch, one, { state, nextAttemptAt }, null)
    t.equal(await record(store, attempt(1), 'pending', T0 + 30_000), 'recorded')
    t.equal(await record(other, attempt(1, { at: T0 + 1 }), 'pending', T0 + 60_000), 'recorded')
    t.same(await other.deliveries(taskId(1)), [{ ...claimed, leaseUntil: null, nextAttemptAt: T0 + 30_000, attempts: [attempt(1)] }])
    t.equal(await record(store, attempt(2), 'failed', null), 'lost', 'no claim is open')
    t.same(await claim(store, T0 + 29_999), [])

    const second = await only(t, claim(store, T0 + 30_000))
    t.match(second, { epoch: 2, attempts: [attempt(1)] })
    const late = await other.recordAttempt(second.id, 2, attempt(2), { state: 'failed', nextAttemptAt: null }, null)
    t.equal(late, 'recorded')
    const ended = { state: 'failed', nextAttemptAt: null, leaseUntil: null, attempts: [attempt(1), attempt(2)] }
    t.match(await store.deliveries(taskId(1)), [ended])
    t.same(await claim(store, T0 + 10 * 24 * 3_600_000), [])
    t.equal(await store.recordAttempt('unknown', 1, attempt(1), { state: 'failed', nextAttemptAt: null }, null), 'lost')
  },

  'a waiting delivery is released once, when the attempt it waits for is recorded': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await store.createTask(task(1, { state: 'failed' }))
    const refunded = delivery(1, { event: 'task.refunded', state: 'waiting', nextAttemptAt: null })
    await store.relay(taskId(1), [delivery(1, { event: 'task.failed' }), refunded], [])
    const failed = await only(t, claim(store, T0 + 100))
    t.equal(failed.event, 'task.failed')
    const release = { id: refunded.id, at: T0 + 200 }
    const next = { state: 'pending', nextAttemptAt: T0 + 30_000 } as const
    t.equal(await other.recordAttempt(failed.id, 9, attempt(1), next, release), 'lost')
    t.match((await store.deliveries(taskId(1)))[1], { state: 'waiting' }, 'a lost attempt releases nothing')
    t.equal(await store.recordAttempt(failed.id, 1, attempt(1), next, release), 'recorded')
    t.same((await other.deliveries(taskId(1)))[1], { ...refunded, state: 'pending', nextAttemptAt: T0 + 200 })

    const claimed = await only(t, claim(other, T0 + 300))
    t.equal(claimed.id, refunded.id)
    t.equal(await store.recordAttempt(failed.id, 1, attempt(1), next, { ...release, at: T0 + 400 }), 'recorded')
    t.same((await store.deliveries(taskId(1)))[1], claimed, 'a repeated attempt changes nothing')

    const again = await only(t, claim(store, T0 + 30_000 - 1 + LEASE_MS, { perHost: 2, limit: 1 }))
    t.equal(again.id, refunded.id, 'its claim had expired')
    const second = await only(t, claim(store, T0 + 30_000 + LEASE_MS))
    t.equal(await store.recordAttempt(second.id, 2, attempt(2), next, { ...release, at: T0 + 900 }), 'recorded')
    t.same((await other.deliveries(taskId(1)))[1], again, 'nor does a later attempt')
  },

  'last attempts recorded at once are each answered by their own claim': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await relayed(store, [1, 2, 3, 4].map((n) => delivery(n, { host: `h${n}.example` })))
    const claimed = new Map((await claim(store)).map((one) => [one.taskId, one]))
    const record = (n: number, epoch: number) => store.recordAttempt(claimed.get(taskId(n))!.id, epoch, attempt(1), { state: 'delivered', nextAttemptAt: null }, null)
    t.same(await Promise.all([record(1, 1), record(2, 1)]), ['recorded', 'recorded'])
    await other.returnDelivery(claimed.get(taskId(3))!.id, 1, T0 + 500)
    t.same(await Promise.all([record(2, 1), record(3, 1), record(4, 1), record(4, 2)]), ['recorded', 'lost', 'recorded', 'lost'], 'one recorded before, one returned, one of another claim')
    const states = await Promise.all([1, 2, 3, 4].map(async (n) => (await other.deliveries(taskId(n))).map(({ state, attempts }) => [state, attempts.length])))
    t.same(states, [[['delivered', 1]], [['delivered', 1]], [['pending', 0]], [['delivered', 1]]])
  },

  'a returned delivery has no attempt and is due at the given time': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await relayed(store, [delivery(1)])
    const claimed = await only(t, claim(store))
    await other.returnDelivery(claimed.id, claimed.epoch, T0 + 500)
    await store.returnDelivery(claimed.id, claimed.epoch, T0 + 900)
    await store.returnDelivery('unknown', 1, T0)
    t.same(await store.deliveries(taskId(1)), [{ ...claimed, leaseUntil: null, nextAttemptAt: T0 + 500 }])
    t.equal(await store.recordAttempt(claimed.id, claimed.epoch, attempt(1), { state: 'delivered', nextAttemptAt: null }, null), 'lost')
    t.same(await claim(store, T0 + 499), [])
    t.match(await claim(store, T0 + 500), [{ id: claimed.id, epoch: 2, attempts: [] }])
  },
  'a redelivery is due now, once at a time, and leaves the schedule as it was': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await relayed(store, [delivery(1)])
    const redeliver = (handle: Store, now: number) => handle.redeliver('acme', delivery(1).id, now)
    t.match(await redeliver(store, T0), { outcome: 'coming', delivery: delivery(1) }, 'its first attempt is due')
    const first = await only(t, claim(store))
    t.match(await redeliver(other, T0), { outcome: 'coming' }, 'its first attempt is under way')
    await store.recordAttempt(first.id, 1, attempt(1), { state: 'pending', nextAttemptAt: T0 + 30_000 }, null)

    const asked = await Promise.all(Array.from({ length: 8 }, (_, i) => redeliver(i % 2 ? store : other, T0 + 10)))
    t.same(asked.map((answer) => answer?.outcome).toSorted(), [...Array<string>(7).fill('coming'), 'due'])
    const [second] = await claim(other, T0 + 10)
    t.match(second, { id: first.id, body: first.body, epoch: 2, nextAttemptAt: T0 + 10, redelivery: { resumeAt: T0 + 30_000 } })
    t.match(await redeliver(store, T0 + 20), { outcome: 'coming' }, 'it is under way')
    const extra = attempt(2, { redelivery: true })
    t.equal(await store.recordAttempt(first.id, 2, extra, { state: 'pending', nextAttemptAt: T0 + 30_000 }, null), 'recorded')
    t.same(await store.deliveries(taskId(1)), [{ ...first, epoch: 2, leaseUntil: null, nextAttemptAt: T0 + 30_000, attempts: [attempt(1), extra] }])
    t.same(await claim(store, T0 + 29_999), [])
    t.match(await claim(store, T0 + 30_000), [{ id: first.id, epoch: 3 }])
  },

  'a delivery that has ended is made due again, and one that is given back stays a redelivery': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    await relayed(store, [delivery(1), delivery(2, { host: 'other.example' })])
    for (const [i, one] of (await claim(store)).entries()) {
      await store.recordAttempt(one.id, 1, attempt(1), { state: i === 0 ? 'delivered' : 'failed', nextAttemptAt: null }, null)
    }
    t.same(await claim(store, T0 + 10), [])
    for (const n of [1, 2]) t.match(await other.redeliver('acme', delivery(n).id, T0 + 10), { outcome: 'due', delivery: { state: 'pending', redelivery: { resumeAt: null } } })
    const [claimed] = await claim(store, T0 + 10)
    await other.returnDelivery(claimed!.id, claimed!.epoch, T0 + 20)
    t.match((await claim(store, T0 + 20)).find(({ id }) => id === claimed!.id), { epoch: 3, redelivery: { resumeAt: null }, attempts: [attempt(1)] })
  },

  'redeliveries of one delivery are limited': async (t, place) => {
    const store = await place.open()
    // Longer than the pause after one that failed.
    const HOURS = 4_000_000
    await relayed(store, [delivery(1)])
    for (let n = 1; n <= 11; n++) {
      const one = await only(t, claim(store, T0 + n * HOURS))
      await store.recordAttempt(one.id, one.epoch, attempt(n, n > 1 ? { redelivery: true } : {}), { state: 'failed', nextAttemptAt: null }, null)
      t.match(await store.redeliver('acme', one.id, T0 + (n + 1) * HOURS), { outcome: n > 10 ? 'exhausted' : 'due' })
    }
    t.same(await claim(store, T0 + 100 * HOURS), [])
  },

  "another tenant's delivery, and one that is not there, are not redelivered": async (t, place) => {
    const store = await place.open()
    await relayed(store, [delivery(1)])
    const one = await only(t, claim(store))
    await store.recordAttempt(one.id, 1, attempt(1), { state: 'failed', nextAttemptAt: null }, null)
    t.equal(await store.redeliver('globex', one.id, T0 + 10), null)
    t.equal(await store.redeliver('acme', 'unknown', T0 + 10), null)
    t.match(await store.replay('globex', ALL, null, T0 + 10, 10), { count: 0, next: null })
    t.same(await claim(store, T0 + 10), [])
  },

  'a replay makes due what a time range holds, by event and state, page by page, oldest first': async (t, place) => {
    const [store, other] = [await place.open(), await place.open()]
    const made = [5, 1, 3, 3, 4, 2].map((at, n) => delivery(n, { createdAt: T0 + at, event: n === 4 ? 'task.failed' : 'task.completed' }))
    await relayed(store, made)
    for (const one of await claim(store)) {
      await store.recordAttempt(one.id, 1, attempt(1), { state: one.id === made[5]!.id ? 'delivered' : 'failed', nextAttemptAt: null }, null)
    }
    const due = async () => (await claim(store, T0 + 9, { limit: 100 })).map(({ id }) => id)
    const only = { ...ALL, since: T0 + 1, until: T0 + 5 }
    t.match(await other.replay('acme', { ...only, event: 'task.failed' }, null, T0 + 9, 10), { count: 1, next: null })
    t.same(await due(), [made[4]!.id])
    t.match(await other.replay('acme', { ...only, event: 'task.refunded' }, null, T0 + 9, 2), { count: 0, next: { createdAt: T0 + 2, id: made[5]!.id } }, 'those that are not selected are examined')
    t.match(await other.replay('acme', { ...only, states: ['delivered'] }, null, T0 + 9, 10), { count: 1, next: null })
    t.same(await due(), [made[5]!.id])

    const first = await other.replay('acme', { ...only, states: ['failed', 'pending'] }, null, T0 + 9, 3)
    t.match(first, { count: 2, next: { createdAt: T0 + 3, id: made[2]!.id } })
    t.same((await due()).toSorted(), [made[1]!.id, made[2]!.id].toSorted())
    const second = await other.replay('acme', { ...only, states: ['failed', 'pending'] }, first.next, T0 + 9, 3)
    t.match(second, { count: 1, next: null }, 'those that are under way are examined, and not made due')
    t.same(await due(), [made[3]!.id])
  },
}
