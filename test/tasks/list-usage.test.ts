import t from 'tap'
import { listUsage } from '../../src/tasks/list-usage.ts'
import { openStore } from '../../src/backends/store/store.ts'
import { admit, ID, plan, settle, T0 } from '../contracts/store/acme.ts'

type Page = { object: string; data: { id: string; time: string }[]; has_more: boolean; next_cursor: string | null }

t.test('a reader that follows the cursor gets every usage record once, also those of one millisecond', async (t) => {
  const store = await openStore(`sqlite:${t.testdir()}/tollgate.db`, { recordsUsage: true })
  t.teardown(() => store.close())
  const page = async (now: number, query: { cursor?: string; limit?: number; since?: string; until?: string } = {}) => (await listUsage(store, ID, { limit: 2, ...query }, now)) as Page
  const ids = ({ data }: Page) => data.map(({ id }) => id)
  const charge = async (id: string, at: number) => {
    await store.change(ID, admit(id, 1), at)
    await store.change(ID, settle(id, 1), at)
  }
  t.same(await page(T0), { object: 'list', data: [], has_more: false, next_cursor: null }, 'there is no plan yet')
  await store.change(ID, plan(), T0)
  for (const [n, id] of ['c', 'b', 'e'].entries()) await charge(id, T0 + n)
  await charge('f', T0 + 10)
  const first = await page(T0 + 11)
  t.same([ids(first), first.has_more], [['c', 'b'], true])
  const second = await page(T0 + 11, { cursor: first.next_cursor! })
  t.same([ids(second), second.has_more], [['e'], false], 'one of the last millisecond waits, since another one may come before it')
  await charge('d', T0 + 10)
  const again = await page(T0 + 11, { cursor: second.next_cursor! })
  t.same([ids(again), again.next_cursor], [[], second.next_cursor])
  await charge('a', T0 + 20)
  const third = await page(T0 + 21, { cursor: again.next_cursor! })
  t.same(ids(third), ['d', 'f'])
  t.same(ids(await page(T0 + 20 + 120_000, { cursor: third.next_cursor! })), ['a'], 'the last of all comes after two minutes')
  t.same(ids(await page(T0 + 200_000, { since: '2026-01-05T00:00:00.001Z', until: '2026-01-05T00:00:00.010Z' })), ['b', 'e'])
  await t.rejects(page(T0, { cursor: 'bm90aGluZw' }), { code: 'invalid_request' })
})
