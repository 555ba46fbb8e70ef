/** Records that are too busy to be changed, in claims and sweeps: the tenants of all other records are served. */
import t, { type Test } from 'tap'
import { DEAD_MS } from '../../plugins/metering/gateway-heartbeat.ts'
import { reservationSweep } from '../../plugins/metering/orphaned-reservations.ts'
import { openUnknownAdmissions, UNKNOWN_MS } from '../../plugins/metering/unknown-admissions.ts'
import type { Store } from '../../src/backends/store/store.ts'
import { Busy, Unavailable } from '../../src/domain/errors.ts'
import { entriesOf } from '../../src/domain/subscription/holds.ts'
import type { Task } from '../../src/domain/task.ts'
import { claimDue } from '../../src/tasks/claim-tasks.ts'
import { openClaims } from '../../src/tasks/claims-in-progress.ts'
import { sweepSubscriptions, sweepTasks } from '../../src/tasks/recovery-sweeps.ts'
import { sweepEach } from '../../src/tasks/sweep-pass.ts'
import { allDue, hold, mediaPlan, plan, T0, task, taskId } from '../contracts/store/acme.ts'
import { contextOf, storeOf } from './task-context.ts'

const HOUR_MS = 3_600_000
const BUSY = 'acme/studio'
const OTHER = 'beta/studio'

type Change = Store['change']

/** The store, where changes of one record are answered by `answer`. */
function withBusy(store: Store, busy: string, answer: () => Promise<never>): Store {
  const change = ((id: string, ...rest: [never, number]) => (id === busy ? answer() : store.change(id, ...rest))) as Change
  return { ...store, change }
}

const tooBusy = () => Promise.reject(new Busy('store', new Error('too many conflicts')))

async function open(t: Test): Promise<Store> {
  const store = await storeOf(t)
  for (const [n, id] of [BUSY, OTHER].entries()) await store.change(id, mediaPlan({}, { plan: { uid: `plan-${n}`, createdAt: T0, generation: 1 } }), T0)
  return store
}

async function queue(store: Store, n: number, subscription: string, facts: Partial<Task> = {}): Promise<void> {
  await store.createTask(task(n, { subscription, tenant: subscription.split('/')[0]!, state: 'queued', sweepAt: null, ...facts }))
  await store.change(subscription, hold(taskId(n)), T0)
}

/** Each is `limit: 1`, so that the longest unserved subscription, which is the busy one, comes first alone. */
t.test('a subscription with a busy record does not keep others from being claimed', async (t) => {
  const store = await open(t)
  await queue(store, 1, BUSY)
  await queue(store, 2, OTHER)
  const started: string[] = []
  const claims = openClaims()
  const request = { kinds: ['image'], limit: 1, leaseMs: HOUR_MS, start: ({ id }: Task) => void started.push(id), claims }
  const context = contextOf(withBusy(store, BUSY, tooBusy), () => T0)
  t.match(await claimDue(context, request), { started: 1 })
  t.same(started, [taskId(2)])
  t.ok(claims.passedOver(T0 + 14_999).has(BUSY), 'it is passed over for a while')
  t.notOk(claims.passedOver(T0 + 15_000).has(BUSY))
})

t.test('a claim is not waited for beyond its time, and may start its task later', async (t) => {
  const store = await open(t)
  await queue(store, 1, BUSY)
  await queue(store, 2, OTHER)
  const answered = Promise.withResolvers<void>()
  const slow = { ...store, change: (async (...args: Parameters<Change>) => {
    if (args[0] === BUSY) await answered.promise
    return store.change(...args)
  }) as Change }
  const started: string[] = []
  let late = 0
  const claims = openClaims()
  const patience = async () => {}
  const request = { kinds: ['image'], limit: 2, leaseMs: HOUR_MS, start: ({ id }: Task) => void started.push(id), claims, patience, late: () => void late++ }
  const context = contextOf(slow, () => T0)
  await claimDue(context, request)
  while (started.length === 0) await new Promise(setImmediate)
  t.same(started, [taskId(2)])
  t.equal(claims.count(), 1)
  t.same(await claimDue(context, request), { started: 0, retryAt: null, isUnavailable: false }, 'it is not claimed a second time meanwhile')
  answered.resolve()
  await claims.ended()
  await new Promise(setImmediate)
  t.same(started, [taskId(2), taskId(1)])
  t.ok(late >= 1)
  t.equal(claims.count(), 0)
})

t.test('more due tasks of a busy record than one batch do not hold up the sweep of another tenant', async (t) => {
  const store = await open(t)
  const lost = { state: 'processing', epoch: 1, attempts: 1 } as const
  for (let n = 0; n < 150; n++) await queue(store, n, BUSY, { ...lost, state: 'settling', outcome: { outcome: 'canceled' }, sweepAt: T0 + n })
  await queue(store, 200, OTHER, { ...lost, sweepAt: T0 + 1000 })
  const context = contextOf(withBusy(store, BUSY, tooBusy), () => T0 + HOUR_MS)
  const first = await sweepTasks(context)
  const second = await sweepTasks(context)
  t.equal(first.lost_lease + second.lost_lease, 1)
  t.equal((await store.task('beta', taskId(200)))?.state, 'queued')
  t.equal((await allDue(store, T0 + HOUR_MS + 15_000)).length, 150, 'the others are due again soon')
})

t.test('a busy record does not hold up the sweep of the holds and periods of others', async (t) => {
  const store = await open(t)
  for (const [n, subscription] of [BUSY, OTHER].entries()) await store.change(subscription, hold(taskId(n)), T0)
  const context = contextOf(withBusy(store, BUSY, tooBusy), () => T0 + HOUR_MS)
  t.match(await sweepSubscriptions(context), { orphan_hold: 1 })
  t.same([...new Map(entriesOf((await store.subscription(OTHER))?.media?.holds)).keys()], [])
  t.same([...new Map(entriesOf((await store.subscription(BUSY))?.media?.holds)).keys()], [taskId(0)])
})

t.test('a busy record does not hold up the sweep of the reservations of others, and its own are charged later', async (t) => {
  const store = await storeOf(t)
  const [busy, other] = ['acme/code', 'beta/code']
  const admit = { op: 'admit', keyId: 'k', keyCap: null, keysVersion: 1, promptBytes: 0, maxOutputTokens: 100 } as const
  for (const id of [busy, other]) {
    await store.change(id, plan(), T0)
    for (const instance of ['dead', 'me']) await store.change(id, { ...admit, id: `${id} ${instance}`, instance }, T0)
  }
  await store.heartbeat('dead', 1)
  let isBusy = true
  const failures: string[] = []
  const sometimes = { ...store, change: ((...args: Parameters<Change>) => (isBusy && args[0] === busy ? tooBusy() : store.change(...args))) as Change }
  const failed = (id: string) => void failures.push(id)
  const sweep = reservationSweep(sometimes, 'me', failed)
  const unknown = openUnknownAdmissions(sometimes, 'me', () => false, failed)
  for (const id of [busy, other]) unknown.add(id, T0)
  t.equal(await unknown.release(T0 + UNKNOWN_MS), 1)
  let expired = 0
  for (let ms = 0; ms <= DEAD_MS; ms += 5_000) expired += await sweep.expireDead(T0 + ms)
  t.equal(expired, 1)
  t.ok((await store.heartbeats()).some(({ instance }) => instance === 'dead'), 'it has reservations')
  t.same(new Set(failures), new Set([busy]))
  isBusy = false
  t.equal(await sweep.expireDead(T0 + DEAD_MS + 5_000), 1)
  t.equal(await unknown.release(T0 + DEAD_MS + 5_000), 1)
  t.same(await store.heartbeats(), [])
})

t.test('a pass ends when the store is away, and not at records that fail for another reason', async (t) => {
  const away = () => Promise.reject(new Unavailable('store', new Error('no server')))
  const broken = () => Promise.reject(new TypeError('damaged'))
  const pass = async (works: (() => Promise<unknown>)[]): Promise<number> => {
    let failures = 0
    await sweepEach(works, (work) => work(), () => failures++)
    return failures
  }
  t.equal(await pass(Array.from({ length: 50 }, (_, n) => (n % 2 ? tooBusy : broken))), 50)
  t.equal(await pass([away, away, broken, away, away]), 5, 'other answers came in between')
  await t.rejects(pass(Array.from({ length: 50 }, () => away)), Unavailable)
})
