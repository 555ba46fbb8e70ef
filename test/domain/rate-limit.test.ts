import t from 'tap'
import { burstOf, openRates, rateLeft, takeOne, type Rate } from '../../src/domain/rate-limit.ts'

/** Takes as many as it can at `now`. */
function takeAll(rate: Rate, perMinute: number, now: number): { taken: number; rate: Rate; retryAfterMs: number } {
  let current = rate
  for (let taken = 0; ; taken++) {
    const decision = takeOne(current, perMinute, now)
    if (!decision.allowed) return { taken, rate: current, retryAfterMs: decision.retryAfterMs }
    current = decision.rate
  }
}

t.test('a burst is a sixth of the rate per minute, at least ten', async (t) => {
  for (const [perMinute, burst] of [[1, 10], [60, 10], [600, 100], [1_000_000, 166_666]] as const) {
    t.equal(burstOf(perMinute), burst)
    t.equal(takeAll({ tat: 0 }, perMinute, 1_000_000_000).taken, burst)
  }
})

t.test('after the burst requests are admitted at the rate, and the reported wait is exact', async (t) => {
  const { rate, retryAfterMs } = takeAll({ tat: 0 }, 60, 5_000)
  t.equal(retryAfterMs, 1000)
  t.notOk(takeOne(rate, 60, 5_999).allowed)
  t.ok(takeOne(rate, 60, 6_000).allowed)
  t.equal(takeAll(rate, 60, 5_000 + 60_000).taken, 10, 'a quiet minute gives back no more than the burst')
})

t.test('the remaining burst falls to zero and refills', async (t) => {
  t.same(rateLeft({ tat: 0 }, 60, 1_000), { remaining: 10, resetSeconds: 0 })
  const { rate } = takeAll({ tat: 0 }, 60, 1_000)
  t.same(rateLeft(rate, 60, 1_000), { remaining: 0, resetSeconds: 10 })
  t.same(rateLeft(rate, 60, 4_000), { remaining: 3, resetSeconds: 7 })
})

t.test('a name that goes on while it is refused is not forgotten for quieter ones, which would give it a new burst', async (t) => {
  const count = openRates('key_reads', 60, 2)
  const passes = (name: string) => {
    try {
      count(name, 1_000)
      return true
    } catch {
      return false
    }
  }
  t.equal([...Array(20)].filter(() => passes('loud')).length, 10)
  for (const quiet of ['a', 'b', 'c']) {
    t.ok(passes(quiet))
    t.notOk(passes('loud'), `after ${quiet}`)
  }
})

t.test('what was counted while the clock was ahead costs at most the burst after it is set back', async (t) => {
  const count = openRates('key_reads', 60, 2)
  for (let n = 0; n < 10; n++) count('a', 3_600_000)
  t.throws(() => count('a', 1_000), { code: 'rate_limited', facts: { retryAfterSeconds: 1 } })
  count('a', 2_000)
})
