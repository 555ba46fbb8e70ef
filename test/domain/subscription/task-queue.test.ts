import t from 'tap'
import { balanceOf } from '../../../src/domain/balance.ts'
import type { MediaTerms, Terms } from '../../../src/domain/plans.ts'
import { holdOf, NO_HOLDS, withHold } from '../../../src/domain/subscription/holds.ts'
import { queuePosition } from '../../../src/domain/subscription/task-queue.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Answer, Command, CommandName } from '../../../src/domain/subscription/commands.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'

const DAY = 24 * 3_600_000
const START = Date.UTC(2026, 0, 31, 12)

function mediaTerms(change: Partial<MediaTerms> = {}): Terms {
  const media: MediaTerms = { allowance: 1000, period: { unit: 'days', count: 30 }, maxConcurrentTasks: 2, maxQueuedTasks: 10, attempts: 3, prices: [], ...change }
  return { displayName: 'Studio', requestsPerMinute: 1_000_000, maxKeys: 5, rotationOverlapMs: 0, coding: null, media }
}

function subject(terms = mediaTerms()) {
  let record: Subscription | null = null
  let now = START
  function run<N extends CommandName>(operation: Extract<Command, { op: N }>): Answer<N> {
    const step = reduce(record, operation, now, 'demo/studio')
    record = step.record
    return step.answer
  }
  const apply = (next: Terms, generation = 1, state: 'Active' | 'Suspended' = 'Active') =>
    run({ op: 'applyPlan', plan: { uid: 'u', createdAt: START, generation }, product: 'Media', terms: next, state, activeFrom: null, activeUntil: null, verdict: null })
  apply(terms)
  return {
    run,
    apply,
    hold: (task: string, amount: number, more: Partial<Extract<Command, { op: 'hold' }>> = {}) =>
      run({ op: 'hold', task, kind: 'image', amount, keyId: 'k', keyCap: null, keysVersion: record?.keysVersion ?? 0, ...more }),
    claim: (claim: string, kinds = ['image']) => run({ op: 'claim', claim, kinds }),
    close: (task: string, actual: number | null) => run({ op: 'close', task, actual }),
    balance: () => balanceOf(record!.media!),
    media: () => record!.media!,
    record: () => record!,
    /** As the store counts its writes. */
    written: (version: number) => {
      record = { ...record!, version }
    },
    /** As another process may have written it. */
    stored: (change: (record: Subscription) => Subscription) => {
      record = change(record!)
    },
    at: (ms: number) => {
      now = ms
    },
  }
}

t.test('a hold takes the quote out of the available balance, once per task', async (t) => {
  const s = subject()
  t.match(s.hold('a', 400), { outcome: 'held' })
  t.match(s.hold('a', 400), { outcome: 'already' })
  t.same(s.balance(), { granted: 1000, available: 600, held: 400, burned: 0 })
  t.same(s.hold('b', 601), { outcome: 'insufficient', available: 600 })
})

t.test('closing burns the actual cost, returns the rest, and happens once', async (t) => {
  const s = subject()
  s.hold('a', 400)
  t.same(s.close('a', 300), { outcome: 'closed', available: 700, held: 400, burned: 300 })
  t.same(s.close('a', 300), { outcome: 'none', available: 700, held: 0, burned: 0 })
  t.same(s.balance(), { granted: 1000, available: 700, held: 0, burned: 300 })
})

t.test('a charge is never more than the hold and never mints credit', async (t) => {
  const s = subject()
  s.hold('a', 100)
  s.close('a', 5000)
  t.equal(s.balance().burned, 100)
  s.hold('b', 100)
  s.close('b', -5000)
  t.equal(s.balance().burned, 100)
})

t.test('what a request holds again after its task was paid is given back whole, also when the task is settled once more', async (t) => {
  const s = subject()
  const close = (epoch: number) => s.run({ op: 'close', task: 'a', actual: 300, epoch })
  s.written(5)
  s.hold('a', 400)
  s.written(6)
  t.match(s.claim('w1'), { outcome: 'claimed', epoch: 6 })
  s.written(7)
  t.same(close(6), { outcome: 'closed', available: 700, held: 400, burned: 300 })
  const returned = { outcome: 'closed', available: 700, held: 400, burned: 0 }
  s.written(6)
  s.hold('a', 400)
  t.same(close(6), returned, 'not even when it is of the write that closed the first one, after one that held and claimed')
  s.written(8)
  t.match(s.hold('a', 400), { outcome: 'held' }, 'the record cannot know that it held for this task before')
  t.same(close(6), returned)
  s.hold('a', 400)
  t.match(s.claim('w2'), { outcome: 'claimed', epoch: 9 })
  t.same(close(6), returned, 'not even when a worker has claimed it')
  s.hold('a', 400)
  s.claim('w3')
  s.run({ op: 'requeue', task: 'a', epoch: 9, readyAt: START, served: false })
  t.same(close(6), returned, 'nor when that worker has put it back')
  t.equal(s.balance().burned, 300)
})

t.test('a begun run is charged while its task waits again, and while a later claim has not started it', async (t) => {
  for (const claims of [0, 1, 2]) {
    const s = subject()
    s.written(5)
    s.hold('a', 400)
    t.match(s.claim('w1'), { outcome: 'claimed', epoch: 6 })
    s.run({ op: 'requeue', task: 'a', epoch: 6, readyAt: START, served: true })
    for (let n = 1; n <= claims; n++) {
      t.match(s.claim(`late ${n}`), { outcome: 'claimed', epoch: 6 + n })
      if (n < claims) s.run({ op: 'requeue', task: 'a', epoch: 6 + n, readyAt: START, served: false })
    }
    t.same(s.run({ op: 'close', task: 'a', actual: 300, epoch: 6 }), { outcome: 'closed', available: 700, held: 400, burned: 300 }, `${claims} claims`)
  }
})

t.test('a hold of an earlier release, which did not keep its first epoch, is charged for the claim that runs', async (t) => {
  const s = subject()
  s.hold('a', 400)
  s.claim('w1')
  s.stored((record) => {
    const { firstEpoch: _, ...hold } = holdOf(record.media!.holds, 'a')!
    return { ...record, media: { ...record.media!, holds: withHold(NO_HOLDS, 'a', hold) } }
  })
  t.match(s.run({ op: 'close', task: 'a', actual: 300, epoch: 1 }), { outcome: 'closed', burned: 300 })
})

t.test('a task without a result releases its whole hold and is not counted as used', async (t) => {
  const s = subject()
  s.hold('a', 100)
  t.same(s.close('a', null), { outcome: 'closed', available: 1000, held: 100, burned: 0 })
  t.same(s.media().period.usage, {})
})

t.test('a free task can be held with nothing available', async (t) => {
  const s = subject()
  s.hold('a', 1000)
  t.match(s.hold('b', 0), { outcome: 'held' })
})

t.test('tasks of the requested kinds are claimed oldest first, and no more run than the plan allows', async (t) => {
  const s = subject()
  s.hold('b', 1)
  s.hold('a', 1)
  s.hold('c', 1, { kind: 'video' })
  t.same(s.claim('w1', ['video', 'image']), { outcome: 'claimed', task: 'a', epoch: 1 })
  t.same(s.claim('w2', ['video']), { outcome: 'claimed', task: 'c', epoch: 1 })
  t.same(s.claim('w3'), { outcome: 'none' }, 'two run already')
  t.same(s.media().due, [], 'nothing is due meanwhile')
  s.close('c', 1)
  t.same(s.media().due, [{ kind: 'image', readyAt: 0 }])
  t.same(s.claim('w3'), { outcome: 'claimed', task: 'b', epoch: 1 })
})

t.test('a repeated claim gets the same task', async (t) => {
  const s = subject()
  s.hold('a', 1)
  s.hold('b', 1)
  t.same(s.claim('w1'), { outcome: 'claimed', task: 'a', epoch: 1 })
  t.same(s.claim('w1'), { outcome: 'claimed', task: 'a', epoch: 1 })
})

t.test('a task put back waits for its time, and its next claim has a higher epoch', async (t) => {
  const s = subject()
  s.hold('a', 1)
  s.claim('w1')
  t.same(s.run({ op: 'requeue', task: 'a', epoch: 9, readyAt: START, served: true }), { outcome: 'none' }, 'another epoch')
  t.same(s.run({ op: 'requeue', task: 'a', epoch: 1, readyAt: START + 5000, served: true }), { outcome: 'waiting' })
  t.same(s.run({ op: 'requeue', task: 'a', epoch: 1, readyAt: START, served: true }), { outcome: 'none' }, 'only once')
  t.same(s.claim('w2'), { outcome: 'none' })
  s.at(START + 5000)
  t.same(s.claim('w2'), { outcome: 'claimed', task: 'a', epoch: 2 })
})

t.test('a claim without a run costs a subscription nothing of its place in the queue; one that ran does', async (t) => {
  const s = subject()
  s.hold('a', 1)
  s.at(START + 10)
  s.claim('w1')
  s.run({ op: 'requeue', task: 'a', epoch: 1, readyAt: START + 20, served: false })
  t.equal(s.media().lastServedAt, START - 1e14)
  s.at(START + 20)
  s.claim('w2')
  s.run({ op: 'requeue', task: 'a', epoch: 2, readyAt: START + 30, served: true })
  t.equal(s.media().lastServedAt, START + 20)
  s.hold('b', 1)
  s.at(START + 40)
  s.claim('w3')
  s.at(START + 50)
  s.claim('w4')
  s.run({ op: 'requeue', task: 'a', epoch: 3, readyAt: START + 60, served: false })
  t.equal(s.media().lastServedAt, START + 50, 'another was served since')
})

t.test('the claims of one turn give the place in the queue back when none of them ran', async (t) => {
  const s = subject()
  s.hold('a', 1)
  s.hold('b', 1)
  s.at(START + 10)
  s.claim('w1')
  s.claim('w2')
  s.run({ op: 'requeue', task: 'a', epoch: 1, readyAt: START + 20, served: false })
  t.equal(s.media().lastServedAt, START + 10, 'the other runs')
  s.run({ op: 'requeue', task: 'b', epoch: 1, readyAt: START + 20, served: false })
  t.equal(s.media().lastServedAt, START - 1e14)
})

t.test('the queue is bounded', async (t) => {
  const s = subject(mediaTerms({ maxQueuedTasks: 2 }))
  s.hold('a', 1)
  s.hold('b', 1)
  t.same(s.hold('c', 1), { outcome: 'queue_full' })
})

t.test('a key has its own share of the period, held and burned together', async (t) => {
  const s = subject()
  s.hold('a', 60, { keyCap: 100 })
  t.same(s.hold('b', 50, { keyCap: 100 }), { outcome: 'key_full', available: 40 })
  s.close('a', 10)
  t.match(s.hold('b', 50, { keyCap: 100 }), { outcome: 'held' })
  t.match(s.hold('c', 500, { keyId: 'other' }), { outcome: 'held' })
})

t.test('a period that ended takes the closes of its own holds and is then archived', async (t) => {
  const s = subject()
  s.hold('a', 400)
  s.at(START + 30 * DAY)
  s.hold('b', 100)
  t.same(s.balance(), { granted: 1000, available: 900, held: 100, burned: 0 }, 'a new allowance, without the old hold')
  t.same(s.run({ op: 'archived', n: 0 }), { outcome: 'none' }, 'its hold is open')
  s.close('a', 400)
  t.equal(s.media().past[0]?.burned, 400)
  t.equal(s.balance().burned, 0)
  t.same(s.run({ op: 'archived', n: 0 }), { outcome: 'archived' })
  t.same(s.run({ op: 'archived', n: 0 }), { outcome: 'none' })
})

t.test('periods without any command are counted', async (t) => {
  const s = subject()
  s.hold('a', 1)
  s.close('a', 1)
  s.at(START + 100 * DAY)
  s.hold('b', 1)
  t.match(s.media().period, { n: 3, start: START + 90 * DAY, end: START + 120 * DAY })
})

t.test('months are counted from the anchor and clamped to the end of a short month', async (t) => {
  const s = subject(mediaTerms({ period: { unit: 'months', count: 1 } }))
  t.equal(s.media().period.end, Date.UTC(2026, 1, 28, 12))
  const starts = [Date.UTC(2026, 1, 28, 12), Date.UTC(2026, 2, 31, 12), Date.UTC(2026, 3, 30, 12)]
  for (const [i, start] of starts.entries()) {
    s.at(start)
    s.hold(`m${i}`, 1)
    t.match(s.media().period, { n: i + 1, start })
  }
})

t.test('a lowered allowance leaves nothing available until the next period, and refunds still add up', async (t) => {
  const s = subject()
  s.hold('a', 800)
  s.apply(mediaTerms({ allowance: 500 }), 2)
  t.same(s.balance(), { granted: 800, available: 0, held: 800, burned: 0 })
  t.same(s.close('a', null), { outcome: 'closed', available: 500, held: 800, burned: 0 })
})

t.test('an inactive plan takes no new holds and finishes the old ones', async (t) => {
  const s = subject()
  s.hold('a', 10)
  s.apply(mediaTerms(), 2, 'Suspended')
  t.match(s.hold('b', 10), { outcome: 'inactive', reason: 'PlanSuspended' })
  t.match(s.claim('w1'), { outcome: 'claimed', task: 'a' })
  t.match(s.close('a', 10), { outcome: 'closed' })
})

t.test('the place in the queue counts those that wait before it', async (t) => {
  const s = subject()
  s.hold('a', 1)
  s.hold('b', 1)
  s.hold('c', 1)
  s.claim('w1')
  t.equal(queuePosition(s.record(), 'a'), null)
  t.equal(queuePosition(s.record(), 'b'), 1)
  t.equal(queuePosition(s.record(), 'c'), 2)
})

t.test('a record of before, in which what is ready at once has the time of its queueing, is read as it is', async (t) => {
  const s = subject()
  s.hold('a', 1)
  s.stored((record) => ({ ...record, media: { ...record.media!, holds: withHold(NO_HOLDS, 'a', { ...holdOf(record.media!.holds, 'a')!, readyAt: START }) } }))
  t.match(s.claim('w1'), { outcome: 'claimed', task: 'a' })
})

t.test('a raised rate holds at once: the debt of the old one is at most the burst of the new one', async (t) => {
  const s = subject({ ...mediaTerms(), requestsPerMinute: 1 })
  for (let i = 0; i < 10; i++) t.match(s.hold(`a${i}`, 1), { outcome: 'held' })
  t.match(s.close('a0', null), { outcome: 'closed' })
  t.match(s.hold('b', 1), { outcome: 'rate', retryAfterMs: 60_000 })
  s.apply({ ...mediaTerms(), requestsPerMinute: 600 }, 2)
  t.match(s.hold('b', 1), { outcome: 'rate', retryAfterMs: 100 })
  s.at(START + 100)
  t.match(s.hold('b', 1), { outcome: 'held' })
})

t.test('a hold is extended by its run alone, within what the plan and the share of its key have left, once', async (t) => {
  const s = subject()
  s.hold('a', 400)
  s.hold('b', 300)
  const claim = s.claim('c1')
  const epoch = claim.outcome === 'claimed' ? claim.epoch : 0
  const extend = (amount: number, more: Partial<Extract<Command, { op: 'extendHold' }>> = {}) => s.run({ op: 'extendHold', task: 'a', epoch, amount, keyCap: null, ...more })
  const other: [string, Partial<Extract<Command, { op: 'extendHold' }>>][] = [['an earlier run', { epoch: epoch - 1 }], ['a task that waits', { task: 'b' }], ['an unknown task', { task: 'z' }]]
  for (const [name, more] of other) t.same(extend(500, more), { outcome: 'none' }, name)
  t.same(extend(701), { outcome: 'insufficient' })
  t.same(extend(501, { keyCap: 800 }), { outcome: 'key_full' }, 'all tasks of the key count')
  t.same(s.balance(), { granted: 1000, available: 300, held: 700, burned: 0 })
  t.same(extend(500, { keyCap: 800 }), { outcome: 'extended', added: 100 })
  t.same(extend(450), { outcome: 'extended', added: 0 }, 'a repeated one')
  t.same([extend(700), s.balance()], [{ outcome: 'extended', added: 200 }, { granted: 1000, available: 0, held: 1000, burned: 0 }])
  t.match(s.close('a', 650), { outcome: 'closed', available: 50, burned: 650 })
  t.same(extend(700), { outcome: 'none' })
})

t.test('a hold of an ended period is not extended: what was left of it is gone', async (t) => {
  const s = subject()
  s.hold('a', 400)
  const claim = s.claim('c1')
  s.at(START + 31 * DAY)
  t.match(s.run({ op: 'extendHold', task: 'a', epoch: claim.outcome === 'claimed' ? claim.epoch : 0, amount: 500, keyCap: null }), { outcome: 'none' })
})

t.test('no amount below zero or beyond exact numbers is held, nor extended to', async (t) => {
  const s = subject()
  s.hold('a', 400)
  const claim = s.claim('c1')
  const epoch = claim.outcome === 'claimed' ? claim.epoch : 0
  for (const amount of [-1, -1e15, 0.5, NaN, -Infinity, 2 ** 53]) {
    t.match(s.hold('b', amount), { outcome: 'insufficient' }, String(amount))
    t.same(s.run({ op: 'extendHold', task: 'a', epoch, amount, keyCap: null }), { outcome: 'insufficient' }, String(amount))
  }
  t.same(s.balance(), { granted: 1000, available: 600, held: 400, burned: 0 })
})

t.test('nothing is extended for a plan that is not active', async (t) => {
  for (const changes of [{ state: 'Suspended' }, { state: 'Retired' }, { activeUntil: START }, { plan: null }] as Partial<Subscription>[]) {
    const s = subject()
    s.hold('a', 400)
    const claim = s.claim('c1')
    s.stored((record) => ({ ...record, ...changes }))
    const command = { op: 'extendHold', task: 'a', epoch: claim.outcome === 'claimed' ? claim.epoch : 0, amount: 500, keyCap: null } as const
    t.match(s.run(command), { outcome: 'inactive' }, JSON.stringify(changes))
    t.match(s.close('a', 500), { outcome: 'closed', burned: 400 })
  }
})
