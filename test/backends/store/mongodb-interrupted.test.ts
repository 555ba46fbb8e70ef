/** Verbs that are one transaction in SQLite and several writes in MongoDB: each write is lost once, or takes effect without an answer, and the verb is repeated. */
import { Collection, MongoNetworkError } from 'mongodb'
import t, { type Test } from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import type { Store } from '../../../src/backends/store/store.ts'
import { allDue, delivery, keyVersion, logged, T0, task, taskId } from '../../contracts/store/acme.ts'
import { interrupt, type WriteFault } from '../interrupted-writes.ts'
import { onMongodb, type Empty } from './empty-store.ts'

const WRITES = ['bulkWrite', 'insertOne', 'updateOne', 'replaceOne', 'findOneAndUpdate', 'deleteOne', 'deleteMany', 'updateMany'] as const

type Scenario = { before(store: Store): Promise<unknown>; verb(store: Store): Promise<unknown>; after(store: Store): Promise<unknown> }

const LEASE = T0 + 1000
const CAPS = { limit: 10, perHost: 4, perTenant: 10, perQueue: 10 }
const claim = (store: Store, now: number) => store.claimDeliveries(now, now + 1000, CAPS)
const attempt = { number: 1, at: T0, durationMs: 1, statusCode: 500, error: 'status', responsePrefix: '' }
const failed = delivery(1, { event: 'task.failed' })
const refunded = delivery(1, { event: 'task.refunded', state: 'waiting', nextAttemptAt: null })
const ended = (n: number) => task(n, { state: 'failed', endedAt: T0, outbox: [{ event: 'task.failed', body: '{}' }], sweepAt: T0 })
const relayed = async (store: Store) => {
  await store.createTask(ended(1))
  await store.relay(taskId(1), [failed, refunded], [logged(1, { event: 'task.failed' }), logged(1, { event: 'task.refunded' })])
}
const deliveriesOf = async (store: Store) => ({ task: await store.task('acme', taskId(1)), deliveries: await store.deliveries(taskId(1)), events: await store.events('acme', 0, 0, 10) })

const SCENARIOS: Record<string, Scenario> = {
  relay: {
    before: (store) => store.createTask(ended(1)),
    verb: (store) => store.relay(taskId(1), [failed, refunded], [logged(1, { event: 'task.failed' }), logged(1, { event: 'task.refunded' })]),
    after: async (store) => ({ ...(await deliveriesOf(store)), due: await allDue(store, T0), claimed: (await claim(store, LEASE)).map(({ id }) => id) }),
  },
  'a recorded attempt that makes another delivery due': {
    before: async (store) => {
      await relayed(store)
      await claim(store, T0)
    },
    verb: (store) => store.recordAttempt(failed.id, 1, attempt, { state: 'pending', nextAttemptAt: T0 + 500 }, { id: refunded.id, at: T0 + 10 }),
    after: async (store) => ({ ...(await deliveriesOf(store)), claimed: (await claim(store, LEASE)).map(({ id }) => id).toSorted() }),
  },
  'a recorded attempt that is the last': {
    before: async (store) => {
      await relayed(store)
      await claim(store, T0)
    },
    verb: (store) => store.recordAttempt(failed.id, 1, attempt, { state: 'failed', nextAttemptAt: null }, null),
    after: async (store) => ({ ...(await deliveriesOf(store)), claimed: (await claim(store, LEASE)).map(({ id }) => id) }),
  },
  'a returned delivery': {
    before: async (store) => {
      await relayed(store)
      await claim(store, T0)
    },
    verb: (store) => store.returnDelivery(failed.id, 1, T0 + 500),
    after: async (store) => ({ ...(await deliveriesOf(store)), claimed: (await claim(store, LEASE)).map(({ id }) => id) }),
  },
  'a redelivery': {
    before: async (store) => {
      await relayed(store)
      await claim(store, T0)
      await store.recordAttempt(failed.id, 1, attempt, { state: 'failed', nextAttemptAt: null }, null)
    },
    // Whoever asks again is answered that it is due already.
    verb: async (store) => (await store.redeliver('acme', failed.id, T0 + 500))?.delivery,
    after: async (store) => ({ ...(await deliveriesOf(store)), claimed: (await claim(store, LEASE)).map(({ id }) => id) }),
  },
  'a replay': {
    before: async (store) => {
      await relayed(store)
      await claim(store, T0)
      await store.recordAttempt(failed.id, 1, attempt, { state: 'failed', nextAttemptAt: null }, null)
    },
    verb: async (store) => (await store.replay('acme', { since: T0, until: T0 + 1, event: null, states: null }, null, T0 + 500, 10)).next,
    after: async (store) => ({ ...(await deliveriesOf(store)), claimed: (await claim(store, LEASE)).map(({ id }) => id) }),
  },
  'tasks removed': {
    before: async (store) => {
      await relayed(store)
      await store.createTask(task(2))
    },
    // The count is not compared: the call whose answer was lost may have removed them.
    verb: async (store) => void (await store.removeTasks(T0 + 1, 10)),
    after: async (store) => ({ ...(await deliveriesOf(store)), other: await store.task('acme', taskId(2)), claimed: await claim(store, LEASE) }),
  },
  'events removed': {
    before: relayed,
    verb: async (store) => void (await store.removeEvents(T0 + 1, 10)),
    after: async (store) => {
      await store.createTask(ended(2))
      await store.relay(taskId(2), [], [logged(2)])
      return store.events('acme', 0, 0, 10)
    },
  },
  'a task created': {
    before: async () => {},
    verb: async (store) => (await store.createTask(task(1, { idempotency: { key: 'k', bodyHash: 'h' } }))).task,
    after: async (store) => [await store.taskWithKey('acme', 'k'), await allDue(store, T0 * 2)],
  },
  'a key minted and changed': {
    before: async () => {},
    verb: async (store) => {
      await store.mintKey(keyVersion('k1', 0))
      return store.setKey('k1-0', { state: 'active' }, ['acme/a'])
    },
    after: (store) => store.keysToTell(10),
  },
  'a sealed key forgotten': {
    before: async (store) => {
      await store.mintKey(keyVersion('k1', 0, { state: 'revoked', endedAt: T0 }))
    },
    verb: async (store) => void (await store.forgetSealed(T0 + 1, 10)),
    after: (store) => store.keyVersions('k1'),
  },
  'a declaration, a heartbeat, a lease': {
    before: async () => {},
    verb: async (store) => {
      await store.declare({ ref: { kind: 'Plan', namespace: 'acme', name: 'a' }, uid: 'u', createdAt: T0, generation: 1, spec: { planRef: { name: 'a' }, state: 'Active', rotationRevision: 0 } })
      await store.heartbeat('i1', 3)
      return store.takeLease('sweep', 'i1', T0 + 10, T0)
    },
    after: async (store) => [await store.declarations(), await store.heartbeats(), await store.takeLease('sweep', 'i2', T0 + 10, T0 + 5)],
  },
}

async function interrupted(t: Test, empty: Empty, scenario: Scenario, fault: WriteFault): Promise<{ writes: number; answer: unknown; state: unknown; calls: number }> {
  const place = await empty.place(t)
  const [store, other] = [await place.open(), await place.open()]
  await scenario.before(store)
  // The driver sometimes passes socket errors on.
  const restore = interrupt(WRITES, fault, Object.assign(new Error('ended by the other side'), { code: 'EPIPE' }))
  let calls = 0
  const insist = async (): Promise<unknown> => {
    calls++
    try {
      return await scenario.verb(calls === 1 ? store : other)
    } catch (error) {
      t.type(error, Unavailable, 'no driver error leaves the backend')
      return insist()
    }
  }
  const answer = await insist()
  const writes = restore()
  return { writes, answer, state: await scenario.after(other), calls }
}

for (const [name, scenario] of Object.entries(SCENARIOS)) {
  t.test(`${name}: whichever write loses its outcome, a repetition leads to the same state`, onMongodb(async (t, empty) => {
    const undisturbed = await interrupted(t, empty, scenario, { write: 0, happens: false })
    t.equal(undisturbed.calls, 1)
    for (let write = 1; write <= undisturbed.writes; write++) {
      for (const happens of [true, false]) {
        const { answer, state, calls } = await interrupted(t, empty, scenario, { write, happens })
        t.equal(calls, 2, `write ${write} of ${undisturbed.writes} ${happens ? 'took effect' : 'was lost'}`)
        t.same({ answer, state }, { answer: undisturbed.answer, state: undisturbed.state })
      }
    }
  }))
}

t.test('a delivery has the body that its event was logged with, whichever write of a settlement was its last', onMongodb(async (t, empty) => {
  for (let write = 1, writes = 1; write <= writes; write++) {
    const store = await (await empty.place(t)).open()
    await store.createTask(ended(1))
    const settle = (body: string) => store.relay(taskId(1), [{ ...failed, body }], [logged(1, { event: 'task.failed', body })])
    const restore = interrupt(WRITES, { write, happens: true })
    await settle('first').catch(() => {})
    writes = restore()
    await settle('second')
    t.match(await deliveriesOf(store), { deliveries: [{ body: 'first' }], events: [{ body: 'first' }] }, `write ${write}`)
  }
}))

/** Makes the next command of several writes fail, after the first half of them took effect. */
function halve(): () => void {
  const { bulkWrite } = Collection.prototype
  Collection.prototype.bulkWrite = async function (this: Collection, operations, options) {
    if (this.collectionName !== 'deliveries') return bulkWrite.call(this, operations, options)
    Collection.prototype.bulkWrite = bulkWrite
    await bulkWrite.call(this, operations.slice(0, Math.ceil(operations.length / 2)), options)
    throw new MongoNetworkError('the connection was lost')
  }
  return () => void (Collection.prototype.bulkWrite = bulkWrite)
}

t.test('a refund is delivered when its failure was delivered before the interrupted relay is repeated', onMongodb(async (t, empty) => {
  const place = await empty.place(t)
  const [store, other] = [await place.open(), await place.open()]
  // The queue of the receiver is due, so that a delivery may be claimed as soon as it is stored.
  await store.createTask(ended(2))
  await store.relay(taskId(2), [delivery(2)], [])
  await store.createTask(ended(1))
  t.teardown(halve())
  await t.rejects(store.relay(taskId(1), [failed, refunded], []), Unavailable)
  const deliverAll = async (now: number): Promise<string[]> => {
    const claimed = await claim(other, now)
    for (const { id, epoch } of claimed) {
      const release = id === failed.id ? { id: refunded.id, at: now } : null
      await other.recordAttempt(id, epoch, attempt, { state: 'delivered', nextAttemptAt: null }, release)
    }
    return claimed.map(({ id }) => id)
  }
  const delivered = await deliverAll(T0)
  await store.relay(taskId(1), [failed, refunded], [])
  for (let now = T0 + 1000; now < T0 + 4000; now += 1000) delivered.push(...(await deliverAll(now)))
  t.same(delivered.toSorted(), [delivery(2).id, failed.id, refunded.id].toSorted())
}))
