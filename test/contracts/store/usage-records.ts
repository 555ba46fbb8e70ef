import type { ChangeOptions } from '../../../src/backends/store/record-change-options.ts'
import type { Store } from '../../../src/backends/store/store.ts'
import { isCodingUsage, type UsageRecord } from '../../../src/domain/usage-records.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../store.ts'
import { admit, hold, ID, mediaPlan, plan, settle, T0, taskId } from './acme.ts'

const RECORDS: ChangeOptions = { recordsUsage: true }
const ALL = { since: 0, until: T0 + 1e9 }
const STUDIO = 'acme/studio'

/** Settles a request at a time. */
async function request(store: Store, id: string, tokens: number, at: number, keyId = 'key-1'): Promise<void> {
  await store.change(ID, admit(id, tokens, { keyId }), at)
  await store.change(ID, settle(id, tokens), at)
}

const ids = (records: UsageRecord[]) => records.map(({ id }) => id)

export const usagePromises: Promises<Place> = {
  'each charge of a coding plan has a usage record at once, and each once': async (t, place) => {
    const [store, other] = [await place.open(RECORDS), await place.open(RECORDS)]
    await store.change(ID, plan({}, { weights: { input: 1000, cachedInput: 100, output: 4000 } }), T0)
    for (const id of ['a', 'free', 'dead']) await store.change(ID, admit(id, 10, { instance: id, keyId: 'key-2' }), T0 + 1)
    const usage = { input: 100, cachedInput: 50, output: 7 }
    await store.change(ID, { op: 'settle', id: 'a', usage, estimated: false }, T0 + 2)
    await other.change(ID, { op: 'settle', id: 'a', usage, estimated: false }, T0 + 3)
    await store.change(ID, { op: 'settle', id: 'free', usage: null, estimated: false }, T0 + 3)
    await other.change(ID, { op: 'expire', instance: 'dead' }, T0 + 4)
    const of = { subscription: ID, keyId: 'key-2' }
    const [first, second, ...more] = await store.usageRecords(ID, ALL, null, 10)
    t.same(first, { id: 'a', ...of, at: T0 + 2, usage, charged: 83, isEstimated: false })
    t.same(second, { id: 'dead', ...of, at: T0 + 4, usage: null, charged: 40, isEstimated: true })
    t.same(more, [])
    t.same(await store.usageRecords('acme/other', ALL, null, 10), [])
    const days = (await store.subscription(ID))?.coding?.usage
    t.match(days, { '2026-01-05': { requests: 2, charged: 123, isRecorded: true } }, 'and the day says that they are complete')
  },

  'each captured task has a usage record, and none that was returned': async (t, place) => {
    const store = await place.open(RECORDS)
    await store.change(STUDIO, mediaPlan(), T0)
    for (const n of [1, 2, 3]) await store.change(STUDIO, { ...hold(taskId(n), 'video'), amount: 500 }, T0)
    for (const claim of ['x', 'y', 'z']) await store.change(STUDIO, { op: 'claim', claim, kinds: ['video'] }, T0 + 1)
    await store.change(STUDIO, { op: 'close', task: taskId(1), actual: 300 }, T0 + 2)
    await store.change(STUDIO, { op: 'close', task: taskId(1), actual: 300 }, T0 + 2)
    await store.change(STUDIO, { op: 'close', task: taskId(2), actual: null }, T0 + 3)
    await store.change(STUDIO, { op: 'close', task: taskId(3), actual: 0 }, T0 + 4)
    const of = { subscription: STUDIO, keyId: 'key-1', kind: 'video' }
    t.same(await store.usageRecords(STUDIO, ALL, null, 10), [
      { id: taskId(1), ...of, at: T0 + 2, cost: 300 },
      { id: taskId(3), ...of, at: T0 + 4, cost: 0 },
    ])
    t.match((await store.subscription(STUDIO))?.media?.period.usage, { '2026-01-05': { video: { count: 2, burned: 300, isRecorded: true } } })
  },

  'without their setting no usage records are made, and days say so': async (t, place) => {
    const [off, on] = [await place.open(), await place.open(RECORDS)]
    await off.change(ID, plan(), T0)
    await request(off, 'a', 5, T0)
    await request(on, 'b', 5, T0)
    await request(on, 'c', 5, T0 + 86_400_000)
    t.same(ids(await off.usageRecords(ID, ALL, null, 10)), ['b', 'c'])
    const days = (await off.subscription(ID))?.coding?.usage
    t.same([days?.['2026-01-05']?.isRecorded, days?.['2026-01-06']?.isRecorded], [undefined, true])
    await request(off, 'd', 5, T0 + 86_400_000)
    t.equal((await off.subscription(ID))?.coding?.usage['2026-01-06']?.isRecorded, undefined)
  },

  'usage records are listed by time and id, page by page, in a range': async (t, place) => {
    const store = await place.open(RECORDS)
    await store.change(ID, plan(), T0)
    for (const id of ['e', 'd', 'c']) await request(store, id, 1, T0 + 10)
    for (const id of ['b', 'a']) await request(store, id, 1, T0 + 20)
    await request(store, 'z', 1, T0 + 30)
    const all: UsageRecord[] = []
    for (let page: UsageRecord[]; (page = await store.usageRecords(ID, ALL, all.at(-1) ?? null, 2)).length > 0;) all.push(...page)
    t.same(ids(all), ['c', 'd', 'e', 'a', 'b', 'z'])
    t.same(ids(await store.usageRecords(ID, { since: T0 + 20, until: T0 + 30 }, null, 10)), ['a', 'b'], 'the end of a range is not in it')
    t.same(ids(await store.usageRecords(ID, { since: T0 + 20, until: T0 + 30 }, { at: T0 + 10, id: 'd' }, 10)), ['a', 'b'])
  },

  'many charges at once from several processes have all their usage records': async (t, place) => {
    const stores = await Promise.all([place.open(RECORDS), place.open(RECORDS), place.open(RECORDS)])
    await stores[0]!.change(ID, plan(), T0)
    const wanted = Array.from({ length: 120 }, (_none, n) => `r${String(n).padStart(3, '0')}`)
    await Promise.all(wanted.map((id, n) => request(stores[n % 3]!, id, n + 1, T0 + n)))
    const store = stores[0]!
    const found = await store.usageRecords(ID, ALL, null, 500)
    t.same(ids(found).sort(), wanted)
    const sum = found.reduce((all, one) => all + (isCodingUsage(one) ? one.charged : 0), 0)
    t.same([sum, (await store.subscription(ID))?.coding?.weekly.used], [7260, 7260])
  },

  'usage records are published once each where they are to be, and removed by their time': async (t, place) => {
    const [plain, publishing] = [await place.open(RECORDS), await place.open({ ...RECORDS, publishesUsage: true })]
    await plain.change(ID, plan(), T0)
    await request(plain, 'kept', 1, T0)
    await plain.storeOutboxes(T0 + 1e9, 10)
    for (const [n, id] of ['b', 'a', 'c'].entries()) await request(publishing, id, 1, T0 + 10 + n)
    await publishing.storeOutboxes(T0 + 1e9, 10)
    const due = await plain.unpublishedUsage(2)
    t.same(ids(due), ['b', 'a'], 'the oldest first')
    await plain.usagePublished(due)
    await plain.usagePublished(due)
    t.same(ids(await publishing.unpublishedUsage(10)), ['c'])
    t.equal(await plain.usageFloor(), 0)
    t.equal(await plain.removeUsage(T0, 10, 'all'), 0)
    t.equal(await plain.usageFloor(), 0, 'where none was removed')
    t.equal(await plain.removeUsage(T0 + 11, 1, 'all'), 1, 'as many as were asked for')
    t.equal(await plain.removeUsage(T0 + 11, 10, 'all'), 1)
    t.same(ids(await plain.usageRecords(ID, ALL, null, 10)), ['a', 'c'])
    t.equal(await plain.removeUsage(T0 + 20, 10, 'published'), 1)
    t.same(ids(await plain.usageRecords(ID, ALL, null, 10)), ['c'], 'which is still to be published')
    t.equal(await plain.usageFloor(), T0 + 20)
    t.equal(await plain.removeUsage(T0 + 15, 10, 'all'), 1)
    t.equal(await publishing.usageFloor(), T0 + 20, 'the latest of all')
  },
}
