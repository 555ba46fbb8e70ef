/** Commands in turn on a record in memory, whose sums are kept, against the reducer, which computes them anew for each. */
import t from 'tap'
import { heal } from '../../../src/domain/subscription/clock-healing.ts'
import type { Command } from '../../../src/domain/subscription/commands.ts'
import { CurrentRecord } from '../../../src/domain/subscription/current-record.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { WEEK_MS } from '../../../src/domain/token-windows.ts'
import { rngOf } from '../../simulation/seeded-random.ts'

const ID = 'demo/coder'
const START = Date.UTC(2026, 0, 1)
const HOUR = 3_600_000
const SEEDS = 60
const COMMANDS = 2_500

type Random = { below(n: number): number; pick<T>(all: readonly T[]): T }

function randomFrom(seed: number): Random {
  const { whole, pick } = rngOf(seed)
  return { below: (n) => whole(0, n - 1), pick }
}

/** Small numbers, so that every limit is met. */
function plan({ below, pick }: Random, generation: number): Command {
  const weights = { input: pick([1000, 333]), cachedInput: 100, output: pick([1000, 4001]) }
  const coding = {
    sessionTokens: 2000 + below(20_000), sessionMs: pick([HOUR, 5 * HOUR]), weeklyTokens: 20_000 + below(100_000), weights,
    onAbort: pick(['Cancel', 'Drain'] as const), maxConcurrentRequests: 1 + below(20), maxOutputTokens: 4096,
  }
  const terms = { displayName: 'Coder', requestsPerMinute: pick([2, 6000]), maxKeys: 5, rotationOverlapMs: HOUR, media: null, coding: pick([coding, coding, coding, null]) }
  const state = pick(['Active', 'Active', 'Active', 'Suspended', 'Retired'] as const)
  return { op: 'applyPlan', plan: { uid: 'u', createdAt: START, generation }, product: 'Coding', terms, state, activeFrom: null, activeUntil: pick([null, null, START + 3 * WEEK_MS]), verdict: null }
}

function command(random: Random, n: number, keysVersion: number): Command {
  const { below, pick } = random
  const id = () => `r${n - below(Math.min(n, 30))}`
  const drawn = below(1000)
  if (drawn < 450) {
    return { op: 'admit', id: pick([`r${n}`, `r${n}`, id()]), instance: pick(['a', 'b']), keyId: pick(['k1', 'k2', 'k3']), keyCap: pick([null, null, 500, 20_000]), keysVersion: below(50) === 0 ? keysVersion + 1 : keysVersion, promptBytes: below(4000), maxOutputTokens: pick([null, below(2000)]) }
  }
  if (drawn < 860) {
    const usage = below(10) === 0 ? null : { input: below(3000), cachedInput: below(200), output: below(3000) }
    return { op: 'settle', id: id(), usage, estimated: below(4) === 0, ...(below(3) === 0 ? {} : { seen: below(3000) }) }
  }
  if (drawn < 960) return { op: 'extend', id: id(), tokens: below(6000) }
  if (drawn < 968) return { op: 'expire', instance: pick(['a', 'b', 'c']) }
  if (drawn < 975) return { op: 'lease', instance: pick(['a', 'b']), wanted: { tokens: below(4000), requests: below(20), keys: pick([{}, { k1: { tokens: below(500), cap: 500 } }]) }, forMs: below(2000) }
  if (drawn < 985) return { op: 'countRefusals', id: `c${n}`, reasons: { rate_limited: 1 }, keys: { k1: 1 } }
  if (drawn < 990) return { op: 'keysChanged' }
  if (drawn < 991) return { op: 'removePlan', uid: 'u' }
  return plan(random, n)
}

/** Mostly forward by little, now and then to the end of a window and beyond, and back: the clocks of processes differ. */
function timeAfter({ below }: Random, now: number): number {
  const drawn = below(1000)
  if (drawn < 3) return now + WEEK_MS + below(WEEK_MS)
  if (drawn < 15) return now + HOUR + below(5 * HOUR)
  if (drawn < 60) return now - below(4000)
  return now + below(drawn < 100 ? 4000 : 500)
}

t.test(`a record in memory answers and becomes what the reducer makes of it, over ${SEEDS * COMMANDS} random commands`, async (t) => {
  const answers = new Map<string, number>()
  for (let seed = 1; seed <= SEEDS; seed++) {
    const random = randomFrom(seed)
    let reduced: Subscription | null = null
    const current = new CurrentRecord(ID, null)
    let now = START
    for (let n = 1; n <= COMMANDS; n++) {
      now = timeAfter(random, now)
      const next = n === 1 ? plan(random, n) : command(random, n, reduced?.keysVersion ?? 0)
      const step: { record: Subscription | null; answer: { outcome: string } } = reduce(reduced, next as never, now, ID)
      const answer: { outcome: string } = current.apply(next as never, now)
      reduced = step.record
      answers.set(`${next.op} ${answer.outcome}`, (answers.get(`${next.op} ${answer.outcome}`) ?? 0) + 1)
      if (JSON.stringify(answer) !== JSON.stringify(step.answer)) return t.same(answer, step.answer, `seed ${seed}, command ${n}: ${JSON.stringify(next)}`)
      // Also between two looks at the record, as between two writes.
      if (random.below(5) > 0) continue
      if (random.below(10) === 0 && reduced) {
        const storeNow = now - random.below(20_000)
        reduced = heal(reduced, storeNow)
        current.heal(storeNow)
      }
      if (random.below(2) === 0 && reduced) {
        reduced = { ...reduced, version: n }
        current.withVersion(n)
      }
      if (JSON.stringify(current.record()) !== JSON.stringify(reduced)) return t.same(current.record(), reduced, `seed ${seed}, after command ${n}: ${JSON.stringify(next)}`)
    }
  }
  const expected = ['admitted', 'stale', 'inactive', 'rate', 'session_full', 'weekly_full', 'key_full', 'concurrency', 'reserved'].map((outcome) => `admit ${outcome}`)
  for (const outcome of [...expected, 'settle settled', 'settle already', 'extend extended', 'extend gone', 'expire settled', 'countRefusals counted']) t.ok((answers.get(outcome) ?? 0) >= 20, `${outcome}: ${answers.get(outcome)}`)
})

t.test('a command that changes nothing leaves the record the same object, also at the end of a window', async (t) => {
  const random = randomFrom(1)
  const current = new CurrentRecord(ID, null)
  const terms = { displayName: 'Coder', requestsPerMinute: 6000, maxKeys: 5, rotationOverlapMs: HOUR, media: null, coding: { sessionTokens: 100, sessionMs: HOUR, weeklyTokens: 100, weights: { input: 1000, cachedInput: 1000, output: 1000 }, onAbort: 'Cancel' as const, maxConcurrentRequests: 2, maxOutputTokens: 100 } }
  current.apply({ ...(plan(random, 1) as Extract<Command, { op: 'applyPlan' }>), terms, state: 'Active', activeUntil: null }, START)
  const admit = (id: string) => ({ op: 'admit' as const, id, instance: 'a', keyId: 'k', keyCap: null, keysVersion: current.record()?.keysVersion ?? 0, promptBytes: 0, maxOutputTokens: 100 })
  current.apply<'admit'>(admit('r1'), START)
  const written = current.withVersion(2)
  t.match(current.apply<'admit'>(admit('r2'), START), { outcome: 'reserved' })
  t.match(current.apply<'extend'>({ op: 'extend', id: 'gone', tokens: 1 }, START + 2 * HOUR), { outcome: 'gone' })
  t.equal(current.record(), written)
})

t.test('a record that was taken from memory does not change with later commands', async (t) => {
  const random = randomFrom(7)
  const current = new CurrentRecord(ID, null)
  const taken: [Subscription | null, string][] = []
  for (let n = 1; n <= 2000; n++) {
    current.apply((n === 1 ? plan(random, n) : command(random, n, current.record()?.keysVersion ?? 0)) as never, START + n * 50)
    if (n % 20 === 0) taken.push([current.record(), JSON.stringify(current.record())])
  }
  t.ok(taken.every(([record, text]) => JSON.stringify(record) === text))
})
