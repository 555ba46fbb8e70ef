import t from 'tap'
import type { Command } from '../../../src/domain/subscription/commands.ts'
import { MAX_SKEW_MS } from '../../../src/domain/subscription/clock-healing.ts'
import { CurrentRecord } from '../../../src/domain/subscription/current-record.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Lease, Subscription } from '../../../src/domain/subscription/subscription.ts'
import { reservedIn } from '../../../src/domain/token-windows.ts'
import { rngOf } from '../../simulation/seeded-random.ts'

const ID = 'acme/coder'
const T0 = Date.UTC(2026, 0, 1)
const FOR_MS = 1000
const KEY = { keyId: 'k', keyCap: null, keysVersion: 1 }

type Admit = Extract<Command, { op: 'admit' }>
type Edited = { sessionTokens?: number; maxConcurrentRequests?: number; requestsPerMinute?: number; state?: 'Active' | 'Suspended' }

function plan({ requestsPerMinute = 100_000, state = 'Active', ...coding }: Edited, generation = 1): Command {
  const weights = { input: 1000, cachedInput: 1000, output: 1000 }
  const terms = { displayName: 'Coder', requestsPerMinute, maxKeys: 5, rotationOverlapMs: 0, media: null, coding: { sessionTokens: 100_000, sessionMs: 3_600_000, weeklyTokens: 10_000_000, weights, onAbort: 'Cancel' as const, maxConcurrentRequests: 400, maxOutputTokens: 4096, ...coding } }
  return { op: 'applyPlan', plan: { uid: 'u', createdAt: T0, generation }, product: 'Coding', terms, state, activeFrom: null, activeUntil: null, verdict: null }
}

function recordOf(...commands: Command[]): Subscription {
  let record: Subscription | null = null
  for (const command of commands) record = reduce(record, command as never, T0, ID).record
  return record as Subscription
}

/** Reserves 100 tokens, unless said otherwise. */
const admit = (id: string, instance: string, changed: Partial<Admit> = {}): Admit => ({ op: 'admit', id, instance, ...KEY, promptBytes: 0, maxOutputTokens: 100, ...changed })
const lease = (instance: string, tokens: number, requests: number, keys = {}): Command => ({ op: 'lease', instance, wanted: { tokens, requests, keys }, forMs: FOR_MS })
const leasesOf = (record: Subscription) => record.coding?.leases ?? {}

t.test('a lease is what is wanted, at most a quarter of what is left beside reservations and other leases', async (t) => {
  const first = recordOf(plan({}), lease('a', 1000, 10))
  t.same(leasesOf(first)['a'], { until: T0 + FOR_MS, tokens: 1000, requests: 10, keys: {} })
  const greedy = recordOf(plan({}), admit('r', 'b', { maxOutputTokens: 4000 }), lease('a', 1_000_000, 1000))
  t.match(leasesOf(greedy)['a'], { tokens: 24_000, requests: 99 })
  const second = recordOf(plan({}), lease('a', 1_000_000, 1000), lease('b', 1_000_000, 1000))
  t.match(leasesOf(second)['b'], { tokens: 18_750, requests: 75 })
  const again = reduce(second, lease('a', 1_000_000, 1000) as never, T0, ID).record as Subscription
  t.match(leasesOf(again)['a'], { tokens: 20_312, requests: 81 }, 'its own lease is no limit of the next one')
})

t.test('near the end, and in a small plan, there is no lease; and one that is not wanted any more is given back', async (t) => {
  t.same(leasesOf(recordOf(plan({ sessionTokens: 103 }), admit('r', 'b'), lease('a', 1000, 10))), {})
  t.same(leasesOf(recordOf(plan({ sessionTokens: 799 }), lease('a', 1000, 10))), {}, 'fewer tokens than two of its requests take')
  t.match(leasesOf(recordOf(plan({ sessionTokens: 800 }), lease('a', 1000, 10))), { a: { tokens: 200 } })
  t.same(leasesOf(recordOf(plan({ maxConcurrentRequests: 7 }), lease('a', 1000, 10))), {})
  t.same(leasesOf(recordOf(plan({ requestsPerMinute: 5 }), ...Array.from({ length: 3 }, (_, n) => admit(`r${n}`, 'a')), lease('a', 1000, 10))), {}, 'seven of the rate are left')
  t.same(leasesOf(recordOf(plan({ state: 'Suspended' }), lease('a', 1000, 10))), {})
  t.same(leasesOf(recordOf(plan({}), lease('a', 1000, 10), lease('a', 0, 0))), {})
})

t.test('others have what is left of a lease; its gateway has all of it, and everybody once it has lapsed', async (t) => {
  const record = recordOf(plan({ sessionTokens: 4200, maxConcurrentRequests: 20 }), admit('before', 'c'), lease('a', 1000, 5))
  const outcome = (command: Command, now = T0) => (reduce(record, command as never, now, ID).answer as { outcome: string }).outcome
  const large = { maxOutputTokens: 3500 }
  t.equal(outcome(admit('r', 'b', large)), 'reserved')
  t.equal(outcome(admit('r', 'a', large)), 'admitted')
  t.equal(outcome(admit('r', 'b', large), T0 + FOR_MS), 'admitted')
  const busy = recordOf(plan({ maxConcurrentRequests: 20 }), lease('a', 1000, 5), ...Array.from({ length: 15 }, (_, n) => admit(`b${n}`, 'b')))
  t.equal(Object.keys(busy.coding?.reservations ?? {}).length, 15)
  t.match(reduce(busy, admit('r', 'b') as never, T0, ID).answer, { outcome: 'concurrency' })
  t.match(reduce(busy, admit('r', 'a') as never, T0, ID).answer, { outcome: 'admitted' })
})

t.test('a lease alone keeps no request out: a lone one gets what is left beside it, and one of the rate is not refused by it', async (t) => {
  const record = recordOf(plan({ sessionTokens: 4000, requestsPerMinute: 60 }), lease('a', 1000, 5))
  t.match(reduce(record, admit('r', 'b', { maxOutputTokens: 3500 }) as never, T0, ID).answer, { outcome: 'admitted', reserved: 3000 })
  const account = record.coding as NonNullable<Subscription['coding']>
  const all = { ...record, coding: { ...account, leases: { a: { until: T0 + FOR_MS, tokens: 5000, requests: 5, keys: {} } } } }
  t.match(reduce(all, admit('r', 'b') as never, T0, ID).answer, { outcome: 'admitted', reserved: 1 })
  const busy = recordOf(plan({ requestsPerMinute: 60 }), lease('a', 1000, 2), ...Array.from({ length: 9 }, (_, n) => admit(`r${n}`, 'b')))
  t.match(reduce(busy, admit('r', 'b') as never, T0, ID).answer, { outcome: 'admitted' })
})

t.test('leases that have lapsed are dropped by whoever writes next, also without a lease of its own', async (t) => {
  const record = recordOf(plan({}), lease('a', 1000, 5), lease('b', 1000, 5))
  const later = reduce(record, lease('c', 0, 0) as never, T0 + FOR_MS, ID).record as Subscription
  t.same(leasesOf(later), {})
  t.equal(reduce(later, lease('c', 0, 0) as never, T0 + FOR_MS, ID).record, later, 'without any nothing changes')
})

t.test('a lease that ends later than any is given for, by more than clocks may differ, counts for nothing', async (t) => {
  const record = recordOf(plan({ maxConcurrentRequests: 20 }), { ...lease('a', 1000, 5), forMs: FOR_MS + MAX_SKEW_MS + 1 } as Command, ...Array.from({ length: 15 }, (_, n) => admit(`b${n}`, 'b')))
  t.match(reduce(record, admit('r', 'b') as never, T0, ID).answer, { outcome: 'admitted' })
  t.equal(new CurrentRecord(ID, record).applyByLease(admit('r', 'a'), T0), null)
  t.same(leasesOf(reduce(record, lease('b', 0, 0) as never, T0, ID).record as Subscription), {})
})

t.test('a request is admitted by a lease that covers it: its tokens, its key, one of the requests, and the time', async (t) => {
  const record = recordOf(plan({}), lease('a', 250, 8, { capped: { tokens: 150, cap: 1000 } }))
  const current = () => new CurrentRecord(ID, record)
  const capped = { keyId: 'capped', keyCap: 1000 }
  t.match(current().applyByLease(admit('r', 'a'), T0), { outcome: 'admitted', reserved: 100 })
  t.equal(current().applyByLease(admit('r', 'b'), T0), null, 'of another gateway')
  t.equal(current().applyByLease(admit('r', 'a', { maxOutputTokens: 300 }), T0), null)
  t.equal(current().applyByLease(admit('r', 'a'), T0 + FOR_MS), null)
  t.equal(current().applyByLease(admit('r', 'a', { keysVersion: 0 }), T0), null, 'of a key that was read before it changed')
  t.equal(current().applyByLease(admit('r', 'a', { keyId: 'other', keyCap: 1000 }), T0), null, 'of a key without a slice of its cap')
  const spent = current()
  t.match(spent.applyByLease(admit('r1', 'a', capped), T0), { outcome: 'admitted' })
  t.equal(spent.applyByLease(admit('r2', 'a', capped), T0), null)
  t.match(spent.applyByLease(admit('r3', 'a'), T0), { outcome: 'admitted' })
  t.equal(spent.applyByLease(admit('r4', 'a'), T0), null, '50 tokens are left')
})

t.test('a settlement of a gateway with a lease is known at once; of another one, or without a lease, it is not', async (t) => {
  const settle: Command = { op: 'settle', id: 'r', usage: { input: 10, cachedInput: 0, output: 20 }, estimated: false }
  const held = new CurrentRecord(ID, recordOf(plan({}), admit('r', 'a'), lease('a', 250, 8)))
  t.same(held.applyByLease(settle, T0), { outcome: 'settled', charged: 30 })
  t.equal(held.applyByLease(settle, T0), null)
  t.equal(new CurrentRecord(ID, recordOf(plan({}), admit('r', 'b'), lease('a', 250, 8))).applyByLease(settle, T0), null)
})

t.test('gateways that admit by leases, in any order: all that is leased fits, and what a lease has admitted is admitted when it is written, unless others have used up the rate', async (t) => {
  const seen = { byLease: 0, alone: 0, refused: 0, ended: 0 }
  for (let seed = 1; seed <= 60; seed++) {
    const { whole, pick, chance } = rngOf(seed)
    const terms = { sessionTokens: whole(5_000, 60_000), sessionMs: pick([20_000, 3_600_000]), maxConcurrentRequests: whole(10, 120), requestsPerMinute: pick([600, 3_000, 100_000]) }
    let record = recordOf(plan(terms))
    let now = T0
    const cap = whole(2_000, 20_000)
    const gateways = ['a', 'b', 'c'].map((instance) => ({ instance, view: null as CurrentRecord | null, waiting: [] as Command[], open: [] as string[] }))
    const keysOf = () => ({ capped: { tokens: whole(0, 2_000), cap } })
    const checkFits = (where: string) => {
      const account = record.coding
      if (!account) return
      const running = Object.values(account.leases ?? {}).filter(({ until }) => until > record.at)
      const sum = (of: (one: Lease) => number) => running.reduce((total, one) => total + of(one), 0)
      const { count, session, key } = reservedIn(account, 'capped')
      const used = account.session && account.session.end > record.at ? account.session.used + session : 0
      if (used + sum((one) => one.tokens) > terms.sessionTokens) throw new Error(`${where}: tokens`)
      if (count + sum((one) => one.requests) > terms.maxConcurrentRequests) throw new Error(`${where}: requests`)
      if ((account.keys['capped']?.used ?? 0) + key + sum((one) => one.keys['capped'] ?? 0) > cap) throw new Error(`${where}: key`)
    }
    for (let n = 0; n < 1500; n++) {
      now += whole(0, 12)
      const gateway = pick(gateways)
      const key = chance(0.3) ? { keyId: 'capped', keyCap: cap } : {}
      const request = admit(`${seed}-${n}`, gateway.instance, { ...key, maxOutputTokens: whole(1, 900) })
      if (chance(0.7)) {
        const answer = gateway.view?.applyByLease<'admit'>(request, now)
        if (answer?.outcome === 'admitted') {
          seen.byLease++
          gateway.waiting.push({ ...request, tokens: answer.reserved })
        }
        continue
      }
      if (gateway.open.length > 0 && chance(0.7)) {
        const id = gateway.open.splice(whole(0, gateway.open.length - 1), 1)[0] ?? ''
        const reserved = record.coding?.reservations[id]?.tokens ?? 1
        gateway.waiting.push({ op: 'settle', id, usage: { input: whole(0, reserved), cachedInput: 0, output: 0 }, estimated: true })
      }
      // The write of a gateway: what its lease has admitted, a request that it does not cover, and the next lease.
      for (const command of gateway.waiting.splice(0)) {
        const step: { record: Subscription | null; answer: { outcome: string } } = reduce(record, command as never, now, ID)
        record = step.record as Subscription
        if (command.op !== 'admit') continue
        if (step.answer.outcome === 'admitted') gateway.open.push(command.id)
        else if (step.answer.outcome !== 'rate') throw new Error(`seed ${seed}, request ${command.id} was admitted by a lease and is ${step.answer.outcome}`)
      }
      const alone = reduce(record, request, now, ID)
      record = alone.record as Subscription
      if (alone.answer.outcome === 'admitted') gateway.open.push(request.id)
      seen[alone.answer.outcome === 'admitted' ? 'alone' : 'refused']++
      const renewed = reduce(record, lease(gateway.instance, whole(0, 20_000), whole(0, 40), keysOf()) as never, now, ID)
      record = renewed.record as Subscription
      if ((renewed.answer as { outcome: string }).outcome === 'none') seen.ended++
      else checkFits(`seed ${seed}, step ${n}`)
      gateway.view = new CurrentRecord(ID, record)
    }
  }
  for (const [what, count] of Object.entries(seen)) t.ok(count > 1_000, `${what}: ${count}`)
})
