/** Which gaps between the passes of the sweep count as an outage of the store. */
import t from 'tap'
import { openLeaseGrace } from '../../src/tasks/lease-grace.ts'

t.test('passes that come in their time are no outage, however short the lease', async (t) => {
  const grace = openLeaseGrace(2_000, 1_000, 0)
  for (let at = 1_000; at <= 20_000; at += 1_900) t.notOk(grace.isDue(at), `at ${at} ms`)
})

for (const [leaseMs, gapMs] of [[2_000, 3_000], [30_000, 10_000]] as const) {
  t.test(`with a lease of ${leaseMs} ms, a gap above ${gapMs} ms begins a grace of one lease`, async (t) => {
    const grace = openLeaseGrace(leaseMs, 1_000, 0)
    t.notOk(grace.isDue(gapMs))
    const after = 2 * gapMs + 1
    t.ok(grace.isDue(after))
    for (let at = after; at < after + leaseMs; at += 500) t.ok(grace.isDue(at))
    t.notOk(grace.isDue(after + leaseMs))
  })
}
