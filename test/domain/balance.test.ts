import t from 'tap'
import { availableToKey, firstPeriod, rollPeriod } from '../../src/domain/balance.ts'
import type { MediaTerms } from '../../src/domain/plans.ts'
import { holdsFrom, NO_HOLDS } from '../../src/domain/subscription/holds.ts'
import type { Hold, MediaAccount } from '../../src/domain/subscription/subscription.ts'

const DAY = 24 * 3_600_000
const terms = (period: MediaTerms['period']): MediaTerms => ({ allowance: 1, period, maxConcurrentTasks: 1, maxQueuedTasks: 1, attempts: 1, prices: [] })
const account = (period: MediaAccount['period']): MediaAccount => ({ period, past: [], holds: NO_HOLDS, keys: {}, lastServedAt: 0, due: [] })

t.test('a plan that goes from days to months gets full months, counted from the end of the last days', async (t) => {
  const anchor = Date.UTC(2026, 0, 31)
  const days = account(firstPeriod(terms({ unit: 'days', count: 30 }), anchor))
  const months = rollPeriod(days, terms({ unit: 'months', count: 1 }), anchor, anchor + 30 * DAY).period
  t.equal(months.start, Date.UTC(2026, 2, 2))
  t.equal(months.end, Date.UTC(2026, 3, 2))
  const ends = [3, 4, 5].map((month) => rollPeriod(account(months), terms({ unit: 'months', count: 1 }), anchor, Date.UTC(2026, month, 2)).period.end)
  t.same(ends, [Date.UTC(2026, 4, 2), Date.UTC(2026, 5, 2), Date.UTC(2026, 6, 2)])
})

t.test('several months at once are counted from the anchor', async (t) => {
  const anchor = Date.UTC(2026, 10, 30)
  t.equal(firstPeriod(terms({ unit: 'months', count: 3 }), anchor).end, Date.UTC(2027, 1, 28))
})

t.test('months that follow days are counted from their first day, also from the last of a long month', async (t) => {
  const anchor = Date.UTC(2026, 0, 1)
  const days = account(firstPeriod(terms({ unit: 'days', count: 30 }), anchor))
  const first = rollPeriod(days, terms({ unit: 'months', count: 1 }), anchor, anchor + 30 * DAY)
  t.equal(first.period.start, Date.UTC(2026, 0, 31))
  const starts = [1, 2, 3, 4].map((month) => rollPeriod(first, terms({ unit: 'months', count: 1 }), anchor, Date.UTC(2026, month + 1, 15)).period.start)
  t.same(starts, [Date.UTC(2026, 1, 28), Date.UTC(2026, 2, 31), Date.UTC(2026, 3, 30), Date.UTC(2026, 4, 31)])
})

t.test('changing the unit with every period grants no allowance more often', async (t) => {
  for (const anchor of [Date.UTC(2026, 0, 31), Date.UTC(2026, 1, 1), Date.UTC(2027, 11, 15, 7)]) {
    const units = [terms({ unit: 'months', count: 1 }), terms({ unit: 'days', count: 28 })] as const
    let now = account(firstPeriod(units[1], anchor))
    let granted = 1
    for (; now.period.end < anchor + 240 * DAY; granted++) {
      const { end } = now.period
      now = rollPeriod(now, units[granted % 2 === 0 ? 1 : 0], anchor, end)
      t.equal(now.period.start, end)
      t.ok(now.period.end - end >= 28 * DAY, 'a full period')
    }
    t.equal(granted, 9)
  }
})

t.test("a key may hold what is left of the plan and of its own share: what it has burned and what is held for it count", async (t) => {
  const hold = (keyId: string, amount: number): Hold => ({ period: 0, amount, kind: 'image', keyId, epoch: 0, run: null, readyAt: 0, at: 0 })
  const period = { ...firstPeriod({ ...terms({ unit: 'days', count: 30 }), allowance: 1000 }, 0), burned: 100 }
  const used: MediaAccount = { ...account(period), holds: holdsFrom([['a', hold('one', 200)], ['b', hold('two', 300)]]), keys: { one: { period: 0, burned: 100 } } }
  t.equal(availableToKey(used, { keyId: 'one', cap: null }), 400)
  t.equal(availableToKey(used, { keyId: 'one', cap: 500 }), 200)
  t.equal(availableToKey(used, { keyId: 'one', cap: 250 }), 0)
  t.equal(availableToKey(used, { keyId: 'two', cap: 900 }), 400)
})
