import t from 'tap'
import { firstPeriod, rollPeriod } from '../../src/domain/balance.ts'
import type { MediaTerms } from '../../src/domain/plans.ts'
import type { MediaAccount } from '../../src/domain/subscription/subscription.ts'

const DAY = 24 * 3_600_000
const terms = (period: MediaTerms['period']): MediaTerms => ({ allowance: 1, period, maxConcurrentTasks: 1, maxQueuedTasks: 1, attempts: 1, prices: [] })
const account = (period: MediaAccount['period']): MediaAccount => ({ period, past: [], holds: {}, keys: {}, lastServedAt: 0, due: [] })

t.test('a plan that goes from days to months gets no period that is longer than a month', async (t) => {
  const anchor = Date.UTC(2026, 0, 31)
  const days = account(firstPeriod(terms({ unit: 'days', count: 30 }), anchor))
  const months = rollPeriod(days, terms({ unit: 'months', count: 1 }), anchor, anchor + 30 * DAY).period
  t.equal(months.start, Date.UTC(2026, 2, 2))
  t.equal(months.end, Date.UTC(2026, 2, 31))
})

t.test('several months at once are counted from the anchor', async (t) => {
  const anchor = Date.UTC(2026, 10, 30)
  t.equal(firstPeriod(terms({ unit: 'months', count: 3 }), anchor).end, Date.UTC(2027, 1, 28))
})
