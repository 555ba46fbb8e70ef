import t from 'tap'
import type { Terms } from '../../../src/domain/plans.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Answer, Command, CommandName } from '../../../src/domain/subscription/commands.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { viewOf, WEEK_MS } from '../../../src/domain/token-windows.ts'

const HOUR = 3_600_000
const START = Date.UTC(2026, 0, 1)

function codingTerms(change: Partial<NonNullable<Terms['coding']>> = {}, requestsPerMinute = 1_000_000): Terms {
  return {
    displayName: 'Coder', requestsPerMinute, maxKeys: 5, rotationOverlapMs: HOUR, media: null,
    coding: {
      sessionTokens: 1000, sessionMs: 5 * HOUR, weeklyTokens: 5000, weights: { input: 1000, cachedInput: 1000, output: 1000 },
      onAbort: 'Cancel', maxConcurrentRequests: 32, maxOutputTokens: 65_536, ...change,
    },
  }
}

/** A subscription that remembers its record between operations, as a store would. */
function subject(terms = codingTerms(), state: 'Active' | 'Suspended' = 'Active') {
  let record: Subscription | null = null
  let now = START
  function run<N extends CommandName>(operation: Extract<Command, { op: N }>): Answer<N> {
    const step = reduce(record, operation, now, 'demo/coder')
    record = step.record
    return step.answer
  }
  const apply = (next: Terms, more: Partial<Extract<Command, { op: 'applyPlan' }>> = {}) =>
    run({ op: 'applyPlan', plan: { uid: 'u', createdAt: START, generation: 1 }, product: 'Coding', terms: next, state, activeFrom: null, activeUntil: null, verdict: null, ...more })
  apply(terms)
  return {
    run,
    apply,
    admit: (id: string, tokens: number, more: Partial<Extract<Command, { op: 'admit' }>> = {}) =>
      run({ op: 'admit', id, instance: 'i', keyId: 'k', keyCap: null, keysVersion: record?.keysVersion ?? 0, promptBytes: 0, maxOutputTokens: tokens, ...more }),
    settle: (id: string, output: number, more: Partial<Extract<Command, { op: 'settle' }>> = {}) =>
      run({ op: 'settle', id, usage: { input: 0, cachedInput: 0, output }, estimated: false, ...more }),
    view: () => viewOf(record!.coding!, record!.terms.coding!, now),
    record: () => record!,
    at: (ms: number) => {
      now = ms
    },
  }
}

t.test('a request is admitted with its estimate reserved, and charged once with what was used', async (t) => {
  const s = subject()
  t.match(s.admit('a', 400), { outcome: 'admitted', reserved: 400, maxOutputTokens: 400 })
  t.match(s.view().session, { used: 0, reserved: 400, remaining: 600 })
  t.same(s.settle('a', 300), { outcome: 'settled', charged: 300 })
  t.same(s.settle('a', 300), { outcome: 'already' })
  t.match(s.view(), { session: { used: 300, reserved: 0 }, weekly: { used: 300 } })
})

t.test('a repeated admission reserves once', async (t) => {
  const s = subject()
  s.admit('a', 400)
  t.match(s.admit('a', 400), { outcome: 'admitted', reserved: 400 })
  t.equal(s.view().session.reserved, 400)
})

t.test('what others reserved is no reason to call a window full', async (t) => {
  const s = subject()
  s.admit('a', 900)
  t.equal(s.admit('b', 200).outcome, 'reserved')
  s.settle('a', 10)
  t.equal(s.admit('b', 200).outcome, 'admitted')
})

t.test('a window with room always admits one request, which reserves at most the rest of it', async (t) => {
  const s = subject()
  s.admit('a', 990)
  s.settle('a', 990)
  t.match(s.admit('b', 5000), { outcome: 'admitted', reserved: 10 })
})

t.test('a window is full when what was used reached its limit; the week goes before the session', async (t) => {
  const s = subject(codingTerms({ weeklyTokens: 1500 }))
  s.admit('a', 1000)
  s.settle('a', 1000)
  t.equal(s.admit('b', 1).outcome, 'session_full')
  s.at(START + 5 * HOUR)
  s.admit('c', 500)
  s.settle('c', 700)
  t.equal(s.admit('d', 1).outcome, 'weekly_full')
  t.equal(s.view().weekly.used, 1700, 'overshoot stays on the books of the week')
})

t.test('when both windows are full, the refusal names the one that resets later', async (t) => {
  const s = subject(codingTerms({ weeklyTokens: 1000 }))
  s.at(START + WEEK_MS - HOUR)
  s.admit('a', 1000)
  s.settle('a', 1000)
  t.equal(s.admit('b', 1).outcome, 'session_full')
})

t.test('the session is opened by the first admitted request and its end does not move', async (t) => {
  const s = subject()
  t.equal(s.view().session.resetsAt, null)
  s.at(START + HOUR)
  s.admit('a', 10)
  t.equal(s.view().session.resetsAt, START + 6 * HOUR)
  s.at(START + 3 * HOUR)
  s.admit('b', 10)
  t.equal(s.view().session.resetsAt, START + 6 * HOUR)
  s.at(START + 6 * HOUR)
  t.equal(s.view().session.resetsAt, null, 'idle time opens none')
})

t.test('a settlement goes to the windows that admitted the request, and to no later ones', async (t) => {
  const s = subject()
  s.admit('a', 100)
  s.at(START + WEEK_MS)
  s.admit('b', 50)
  s.settle('a', 100)
  t.match(s.view(), { session: { used: 0, reserved: 50 }, weekly: { used: 0, reserved: 50 } })
  t.equal(Object.values(s.record().coding!.usage)[0]?.charged, 100, 'it still counts in its day')
})

t.test('a key of its own cap is refused at the cap while the plan has room', async (t) => {
  const s = subject()
  s.admit('a', 100, { keyCap: 100 })
  s.settle('a', 100)
  t.equal(s.admit('b', 1, { keyCap: 100 }).outcome, 'key_full')
  t.equal(s.admit('c', 1, { keyId: 'other' }).outcome, 'admitted')
  s.at(START + WEEK_MS)
  t.equal(s.admit('d', 1, { keyCap: 100 }).outcome, 'admitted', 'a new week is a new share')
})

t.test('no more requests are in flight than the plan allows', async (t) => {
  const s = subject(codingTerms({ maxConcurrentRequests: 2 }))
  s.admit('a', 1)
  s.admit('b', 1)
  t.equal(s.admit('c', 1).outcome, 'concurrency')
  s.settle('a', 1)
  t.equal(s.admit('c', 1).outcome, 'admitted')
})

t.test('the rate counts accepted requests exactly, and a refusal has the time until the next one is accepted', async (t) => {
  const s = subject(codingTerms({}, 60))
  for (let i = 0; i < 10; i++) t.equal(s.admit(`r${i}`, 1).outcome, 'admitted')
  t.match(s.admit('r10', 1), { outcome: 'rate', retryAfterMs: 1000 })
  s.at(START + 1000)
  t.equal(s.admit('r10', 1).outcome, 'admitted')
  t.equal(s.admit('r11', 1).outcome, 'rate')
})

t.test('a stale key is refused first, an inactive plan second', async (t) => {
  const s = subject(codingTerms(), 'Suspended')
  t.same(s.admit('a', 1, { keysVersion: 0 }), { outcome: 'stale', keysVersion: 1 })
  t.same(s.admit('a', 1), { outcome: 'inactive', reason: 'PlanSuspended' })
})

t.test('a plan is active from its start to its end without any command at those times', async (t) => {
  const s = subject()
  s.apply(codingTerms(), { activeFrom: START + HOUR, activeUntil: START + 2 * HOUR })
  t.match(s.admit('a', 1), { reason: 'PlanNotActive' })
  s.at(START + HOUR)
  t.equal(s.admit('a', 1).outcome, 'admitted')
  s.at(START + 2 * HOUR)
  t.match(s.admit('b', 1), { reason: 'PlanExpired' })
})

t.test('a stream that outgrew its reservation is extended even past the limit, and is gone once it was settled', async (t) => {
  const s = subject()
  s.admit('a', 10)
  t.same(s.run({ op: 'extend', id: 'a', tokens: 5000 }), { outcome: 'extended', reserved: 5000 })
  t.same(s.run({ op: 'extend', id: 'a', tokens: 20 }), { outcome: 'extended', reserved: 5000 }, 'never less than before')
  s.settle('a', 5000)
  t.same(s.run({ op: 'extend', id: 'a', tokens: 6000 }), { outcome: 'gone' })
})

t.test('what a dead gateway had admitted is charged at its estimate, and a late settlement changes nothing', async (t) => {
  const s = subject()
  s.admit('a', 100)
  s.admit('b', 50, { instance: 'other' })
  t.same(s.run({ op: 'expire', instance: 'i' }), { outcome: 'settled', count: 1 })
  t.same(s.run({ op: 'expire', instance: 'i' }), { outcome: 'already' })
  t.same(s.settle('a', 7), { outcome: 'already' })
  t.match(s.view().session, { used: 100, reserved: 50 })
  t.same(s.record().coding!.usage, { '2026-01-01': { requests: 1, input: 0, cachedInput: 0, output: 0, charged: 100 } }, 'its day counts it, without the tokens that nobody knows')
})

t.test('a request without usage charges nothing', async (t) => {
  const s = subject()
  s.admit('a', 100)
  t.same(s.settle('a', 0, { usage: null }), { outcome: 'settled', charged: 0 })
  t.match(s.view().session, { used: 0, reserved: 0 })
})

t.test('tokens are weighed by kind and rounded up once', async (t) => {
  const s = subject(codingTerms({ weights: { input: 1000, cachedInput: 100, output: 3000 } }))
  s.admit('a', 1)
  t.same(s.run({ op: 'settle', id: 'a', usage: { input: 15, cachedInput: 5, output: 2 }, estimated: false }), { outcome: 'settled', charged: 17 })
})

t.test('the estimate learns from what was used: tokens per byte, and how long answers are', async (t) => {
  const s = subject(codingTerms({ sessionTokens: 1e9, weeklyTokens: 1e9 }))
  t.match(s.admit('first', 0, { maxOutputTokens: null, promptBytes: 1000 }), { reserved: 4096 + 300 })
  s.settle('first', 100, { usage: { input: 250, cachedInput: 0, output: 100 } })
  for (let i = 0; i < 200; i++) {
    s.admit(`l${i}`, 0, { maxOutputTokens: null, promptBytes: 1000 })
    s.settle(`l${i}`, 100, { usage: { input: 250, cachedInput: 0, output: 100 } })
  }
  const answer = s.admit('last', 0, { maxOutputTokens: null, promptBytes: 1000 })
  if (answer.outcome !== 'admitted') return t.fail('admitted')
  t.equal(answer.reserved, 128 + answer.ratio, 'the p95 of outputs by log2, and the learned ratio')
  t.ok(answer.ratio >= 250 && answer.ratio <= 260, `ratio ${answer.ratio}`)
})

t.test('no prompt teaches a ratio that no tokenizer has', async (t) => {
  for (const [input, promptBytes, ratio] of [[10, 1_000_000, 125], [1_000_000, 10, 1000]] as const) {
    const s = subject(codingTerms({ sessionTokens: 1e9, weeklyTokens: 1e9 }))
    for (let i = 0; i < 200; i++) {
      s.admit(`r${i}`, 1, { promptBytes })
      s.settle(`r${i}`, 1, { usage: { input, cachedInput: 0, output: 1 } })
    }
    const answer = s.admit('last', 1, { promptBytes: 8000 })
    t.ok(answer.outcome === 'admitted' && Math.abs(answer.ratio - ratio) < 10, JSON.stringify(answer))
  }
})

t.test('a ratio that an earlier version learned is brought within the bounds', async (t) => {
  const s = subject()
  s.admit('a', 1)
  const record = s.record()
  const step = reduce({ ...record, coding: { ...record.coding!, ratio: 9 } }, { op: 'admit', id: 'b', instance: 'i', keyId: 'k', keyCap: null, keysVersion: record.keysVersion, promptBytes: 800, maxOutputTokens: 1 }, START, 'demo/coder')
  t.match(step.answer, { outcome: 'admitted', ratio: 125, reserved: 101 })
})

t.test('hidden output is learned from reports alone, by sums, so that lowering it costs as many tokens', async (t) => {
  const s = subject(codingTerms({ sessionTokens: 1e9, weeklyTokens: 1e9 }))
  const hidden = () => {
    const answer = s.admit('probe', 1)
    s.settle('probe', 0, { usage: null })
    return answer.outcome === 'admitted' ? answer.hidden : null
  }
  let count = 0
  const learn = (output: number, more: object) => {
    const id = `h${count++}`
    s.admit(id, 1)
    s.settle(id, output, more)
  }
  t.same(hidden(), { outputRatio: 1000, hiddenTokens: 0 })
  learn(5000, {})
  learn(5000, { seen: 1, estimated: true })
  t.same(hidden(), { outputRatio: 1000, hiddenTokens: 0 }, 'without what was seen, and from estimates, nothing is learned')
  learn(1200, { seen: 1000 })
  t.same(hidden(), { outputRatio: 1200, hiddenTokens: 0 }, 'tokenizers differ')
  for (let i = 0; i < 9; i++) learn(10_000, { seen: 1000 })
  t.same(hidden(), { outputRatio: 9120, hiddenTokens: 8120 })
  for (let i = 0; i < 50; i++) learn(1, { seen: 1 })
  t.ok(hidden()!.outputRatio > 8500)
  for (let i = 0; i < 3000; i++) learn(500, { seen: 500 })
  t.equal(hidden()!.hiddenTokens, 0, 'old requests fade')
  for (let i = 0; i < 10_000; i++) learn(5000, { seen: 1000 })
  t.match(hidden(), { outputRatio: 5000 })
  t.ok(Math.abs(hidden()!.hiddenTokens - 4000) < 10, `they fade as a whole, ${hidden()!.hiddenTokens}`)
})

t.test('time inside a record never goes back', async (t) => {
  const s = subject()
  s.at(START + 6 * HOUR)
  s.admit('a', 10)
  s.at(START)
  s.settle('a', 10)
  t.equal(s.record().at, START + 6 * HOUR)
})

t.test('the published bound holds in random histories: used passes a limit only by what requests used beyond their reservation', async (t) => {
  let seed = 12345
  const next = (below: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648
    return seed % below
  }
  for (let round = 0; round < 30; round++) {
    const s = subject(codingTerms({ sessionTokens: 3000, weeklyTokens: 9000, maxConcurrentRequests: 10 }))
    const open = new Map<string, number>()
    let beyond = 0
    let now = START
    for (let step = 0; step < 300; step++) {
      s.at((now += next(200_000)))
      const [oldest] = open.keys()
      if (next(2) === 0 || oldest === undefined) {
        const answer = s.admit(`${round}-${step}`, 1 + next(900))
        if (answer.outcome === 'admitted') open.set(`${round}-${step}`, answer.reserved)
      } else {
        const used = next(1200)
        beyond += Math.max(0, used - (open.get(oldest) ?? 0))
        s.settle(oldest, used)
        open.delete(oldest)
      }
      const { session, weekly } = s.view()
      const most = Math.max(session.used + session.reserved - 3000, weekly.used + weekly.reserved - 9000)
      if (most > beyond) t.fail(`round ${round}, step ${step}: ${most} tokens past a limit, and only ${beyond} beyond reservations`)
    }
  }
  t.pass('30 histories of 300 steps')
})
