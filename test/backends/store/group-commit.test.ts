import { setImmediate as nextTick } from 'node:timers/promises'
import t from 'tap'
import { Busy, Unavailable, Unwritable } from '../../../src/domain/errors.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Command } from '../../../src/domain/subscription/commands.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { openChanges } from '../../../src/backends/store/group-commit.ts'
import type { VersionedRecords } from '../../../src/backends/store/versioned-records.ts'
import { admit, hold, ID, mediaPlan, plan, seeded, sessionOf, settle, T0 } from '../../contracts/store/acme.ts'

/** Records in memory that count calls. A test may inject hooks: each is called once, before the real step. */
function memory() {
  let record: Subscription | null = null
  const seen = { reads: 0, known: [] as (number | undefined)[], replaces: 0 }
  const before: { read: (() => unknown)[]; replace: (() => unknown)[] } = { read: [], replace: [] }
  const records: VersionedRecords = {
    unstored: () => [],
    async read(_id, known) {
      seen.reads++
      seen.known.push(known)
      await before.read.shift()?.()
      return record && record.version === known ? 'unchanged' : record
    },
    async replace(next, replaced) {
      seen.replaces++
      await before.replace.shift()?.()
      if (record?.version !== replaced?.version) return 'conflict'
      record = next
      return 'replaced'
    },
  }
  return {
    records,
    seen,
    before,
    /** Another process changes the record at once. */
    rival(command: Command) {
      const next = reduce(record, command, T0, ID).record
      if (next) record = { ...next, version: (record?.version ?? 0) + 1 }
    },
    record: () => record,
  }
}

function lost(_seen?: void): never {
  throw new Unavailable('store', new Error('no answer came'))
}

t.test('queued commands are written once, and those that arrive meanwhile are written once after them', async (t) => {
  const { records, seen, before, record } = memory()
  const { change } = openChanges(records)
  const later: Promise<unknown>[] = []
  before.replace.push(() => later.push(...['r2', 'r3'].map((id) => change(ID, admit(id, 10), T0))))
  await Promise.all([change(ID, plan(), T0), change(ID, admit('r1', 10), T0)])
  await Promise.all(later)
  t.same(seen, { reads: 1, known: [undefined], replaces: 2 })
  t.match(record(), { version: 2 })
  t.same(sessionOf(record()), { used: 0, reserved: 30 })
})

t.test('very many queued commands are written in batches', async (t) => {
  const { records, seen, record } = memory()
  const { change } = openChanges(records)
  await change(ID, plan(), T0)
  const answers = await Promise.all(Array.from({ length: 450 }, (_, n) => change(ID, admit(`r${n}`, 1), T0)))
  t.ok(answers.every(({ outcome }) => outcome === 'admitted'))
  t.equal(seen.replaces, 4)
  t.same(sessionOf(record()), { used: 0, reserved: 450 })
})

t.test('very many commands are written in batches where leases are taken, but no plan has one', async (t) => {
  const { records, seen } = memory()
  const { change } = openChanges(records, { leases: true })
  await change(ID, mediaPlan(), T0)
  const answers = await Promise.all(Array.from({ length: 450 }, (_, n) => change(ID, hold(`t${n}`), T0)))
  t.ok(answers.every(({ outcome }) => outcome === 'held'))
  t.equal(seen.replaces, 4)
})

t.test('commands queued behind a batch time out together with it', async (t) => {
  const { records, before, seen } = memory()
  let now = 0
  const { change } = openChanges(records, { retryForMs: 1000, clock: () => now, pause: async () => {} })
  before.read.push(() => {
    now = 1000
    lost()
  })
  const settled = await Promise.allSettled(Array.from({ length: 450 }, (_, n) => change(ID, admit(`r${n}`, 1), T0)))
  for (const one of settled) if (one.status === 'fulfilled' || !(one.reason instanceof Unavailable)) t.fail('a change was answered')
  t.equal(seen.reads, 1)
})

t.test('no caller is answered before the write', async (t) => {
  const { records, before } = memory()
  const { change } = openChanges(records)
  let answered = false
  before.replace.push(() => new Promise((resolve) => setImmediate(() => resolve(t.equal(answered, false)))))
  await change(ID, plan(), T0).then(() => (answered = true))
  t.equal(answered, true)
})

t.test('a refusal is based on a record read after the call, not on the cached one', async (t) => {
  const { records, seen, before, rival } = memory()
  const { change } = openChanges(records)
  let late: Promise<unknown> | undefined
  before.replace.push(() => {
    late = change(ID, { op: 'extend', id: 'r1', tokens: 50 }, T0)
  })
  // The record cached by this write has no r1. Another process admits r1 before the extension reads.
  before.read.push(() => {}, () => rival(admit('r1', 10)))
  await change(ID, plan(), T0)
  t.match(await late, { outcome: 'extended', reserved: 50 })
  t.same(seen, { reads: 2, known: [undefined, 1], replaces: 2 })
})

t.test('a refusal needs no second read when a write of the same batch proves the record', async (t) => {
  const { records, seen, before } = memory()
  const { change } = openChanges(records)
  const late: Promise<unknown>[] = []
  before.replace.push(() => late.push(change(ID, { op: 'extend', id: 'none', tokens: 50 }, T0), change(ID, admit('r1', 10), T0)))
  await change(ID, plan(), T0)
  t.match(await Promise.all(late), [{ outcome: 'gone' }, { outcome: 'admitted' }])
  t.equal(seen.reads, 1)
})

t.test('an unchanged record is neither sent nor reduced again', async (t) => {
  const { records, seen, before } = memory()
  const { change } = openChanges(records)
  let late: Promise<unknown> | undefined
  before.replace.push(() => {
    late = change(ID, settle('none', 5), T0)
  })
  await change(ID, plan(), T0)
  t.same(await late, { outcome: 'already' })
  t.same(seen, { reads: 2, known: [undefined, 1], replaces: 1 })
})

t.test('after a conflict the change is applied to the new record', async (t) => {
  const { records, before, rival, record } = memory()
  const reasons: string[] = []
  const { change } = openChanges(records, { retried: (reason) => reasons.push(reason) })
  await change(ID, plan({}, { sessionTokens: 100 }), T0)
  before.replace.push(() => rival(admit('theirs', 60)), () => rival(settle('theirs', 10)))
  t.match(await change(ID, admit('ours', 40), T0), { outcome: 'admitted' })
  t.same(reasons, ['conflict', 'conflict'])
  t.same(sessionOf(record()), { used: 10, reserved: 40 })
})

t.test('a write with an unknown outcome takes effect once, whether it was written or not', async (t) => {
  for (const written of [true, false]) {
    const { records, before, rival, record } = memory()
    const reasons: string[] = []
    const { change } = openChanges(records, { retried: (reason) => reasons.push(reason), pause: async () => {} })
    await change(ID, plan(), T0)
    await nextTick()
    const request = admit('r1', 10)
    before.replace.push(() => {
      if (written) rival(request)
      lost()
    })
    before.read.push(() => {}, lost)
    t.match(await change(ID, request, T0), { outcome: 'admitted', reserved: 10 })
    t.same(reasons, ['unavailable', 'unavailable'])
    t.same(sessionOf(record()), { used: 0, reserved: 10 })
  }
})

t.test('a change whose outcome stays unknown is unavailable after its own deadline, and the next one starts afresh', async (t) => {
  const { records, before } = memory()
  let now = 0
  const pauses: number[] = []
  const changes = openChanges(records, {
    retryForMs: 1000,
    clock: () => now,
    pause: async (ms) => {
      pauses.push(ms)
      await nextTick()
      now += ms
    },
  })
  const failures: number[] = []
  const fails = (change: Promise<unknown>) =>
    change.catch((error: unknown) => {
      t.type(error, Unavailable)
      failures.push(now)
    })
  before.read.push(...Array.from({ length: 100 }, () => lost))
  const first = fails(changes.change(ID, plan(), T0))
  const second = new Promise((resolve) => before.read.splice(4, 1, () => {
    resolve(fails(changes.change(ID, plan(), T0)))
    lost()
  }))
  await Promise.all([first, second])
  t.same(pauses, [10, 20, 40, 80, 160, 320, 500, 500])
  t.same(failures, [1130, 1630])
  before.read = []
  t.same(await changes.change(ID, plan(), T0), { outcome: 'applied' })
})

t.test('an error that is not an outage is not retried, and fails every caller of that write', async (t) => {
  const { records, before, seen } = memory()
  const { change } = openChanges(records)
  before.replace.push(() => {
    throw new TypeError('not a record')
  })
  const settled = await Promise.allSettled([change(ID, plan(), T0), change(ID, admit('r1', 1), T0)])
  for (const one of settled) t.match(one, { status: 'rejected', reason: TypeError })
  t.equal(seen.replaces, 1)
  t.same(await change(ID, plan(), T0), { outcome: 'applied' })
})

t.test('an idle subscription takes no memory: its record is read again', async (t) => {
  const { records, seen } = memory()
  const { change } = openChanges(records)
  await change(ID, plan(), T0)
  await nextTick()
  await change(ID, admit('r1', 1), T0)
  t.same(seen, { reads: 2, known: [undefined, undefined], replaces: 2 })
})

t.test('closing waits for the write in progress and does not retry an outage; later changes are rejected', async (t) => {
  const { records, before, record, rival } = memory()
  const changes = openChanges(records)
  await changes.change(ID, plan(), T0)
  before.replace.push(() => rival(admit('theirs', 1)))
  const conflicting = changes.change(ID, admit('r1', 1), T0)
  await changes.close()
  t.match(await conflicting, { outcome: 'admitted' })
  t.same(sessionOf(record()), { used: 0, reserved: 2 })
  await t.rejects(changes.change(ID, admit('r2', 1), T0), Unavailable)

  const down = memory()
  const unavailable = openChanges(down.records)
  down.before.read.push(lost, lost)
  const failing = t.rejects(unavailable.change(ID, plan(), T0), Unavailable)
  await unavailable.close()
  await failing
  t.equal(down.seen.reads, 1)
})

t.test('of two processes with constant work for one record, neither starves', async (t) => {
  const STEP_MS = 20
  const { records } = memory()
  // Steps of both run on a simulated clock; a read takes as long as a write.
  let now = 0
  const due: { at: number; wake: () => void }[] = []
  const pause = (ms: number): Promise<void> => new Promise((wake) => due.push({ at: now + ms, wake }))
  const slow: VersionedRecords = {
    unstored: () => [],
    async read(...args) {
      await pause(STEP_MS)
      return records.read(...args)
    },
    async replace(...args) {
      await pause(STEP_MS)
      return records.replace(...args)
    },
  }
  await openChanges(records).change(ID, plan(), T0)
  const written = [0, 0]
  const late = [0, 0]
  for (const process of [0, 1]) {
    const { change } = openChanges(slow, { clock: () => now, pause, retryForMs: 1000 })
    const count = (counts: number[]) => () => void (counts[process] = (counts[process] ?? 0) + 1)
    // Requests arrive whether or not earlier ones were answered, so that the queue is never empty during a write.
    void (async () => {
      for (let n = 0; ; n++) {
        await pause(STEP_MS / 2)
        change(ID, n % 2 === 0 ? admit(`${process}-${n}`, 1) : settle(`${process}-${n - 1}`, 1), T0).then(count(written), count(late))
      }
    })()
  }
  while (now < 20_000) {
    for (let ticks = 0; ticks < 5; ticks++) await nextTick()
    due.sort((a, b) => a.at - b.at)
    const next = due.shift()
    now = next?.at ?? now
    next?.wake()
  }
  t.same(late, [0, 0], 'no change timed out')
  t.ok(Math.min(...written) * 2 > Math.max(...written), `${written.join(' and ')} were written`)
})

t.test('a record that other processes change all the time is busy, which is not an outage', async (t) => {
  let clock = 0
  const pause = async (ms: number) => void (clock += ms)
  const record = reduce(null, plan(), T0, ID).record
  const records = { unstored: () => [], read: async () => record, replace: async () => ((clock += 100), 'conflict' as const) }
  await t.rejects(openChanges(records, { clock: () => clock, pause }).change(ID, admit('r1', 1), T0), Busy)
  const away = { ...records, replace: async () => ((clock += 100), Promise.reject(new Unavailable('store', new Error('no answer')))) }
  const error = await openChanges(away, { clock: () => clock, pause }).change(ID, admit('r1', 1), T0).catch((failure: unknown) => failure)
  t.type(error, Unavailable)
  t.notOk(error instanceof Busy)
})

t.test('a process that writes alone applies commands while it writes, and writes those once after it', async (t) => {
  const { records, seen, before, record } = memory()
  const { change, decide } = openChanges(records, { isSole: true })
  await change(ID, plan(), T0)
  const [begun, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  before.replace.push(() => (begun.resolve(), mayEnd.promise))
  const first = await decide<'admit'>(ID, admit('r1', 10), T0)
  await begun.promise
  const later = await Promise.all(['r2', 'r3'].map((id) => decide<'admit'>(ID, admit(id, 10), T0)))
  t.same([first, ...later].map(({ answer }) => answer.outcome), ['admitted', 'admitted', 'admitted'])
  t.match(later[1]?.answer, { windows: { session: { reserved: 30 } } })
  t.same(sessionOf(record()), { used: 0, reserved: 0 }, 'nothing is written yet')
  mayEnd.resolve()
  await first.durable
  t.same(sessionOf(record()), { used: 0, reserved: 10 })
  await Promise.all(later.map(({ durable }) => durable))
  t.same(sessionOf(record()), { used: 0, reserved: 30 })
  t.equal(seen.replaces, 3)
})

/** Whether each is answered before `turn`, which is after all that can be known without the disk. */
async function answeredEarly(answers: Promise<unknown>[], turn: () => void): Promise<boolean[]> {
  let isEarly = true
  const early = answers.map((answer) => answer.then(() => isEarly, () => isEarly))
  for (let i = 0; i < 10; i++) await nextTick()
  isEarly = false
  turn()
  return Promise.all(early)
}
const OTHER = 'acme/other'

for (const [name, change] of [['the same record', ID], ['another record', OTHER]] as const) {
  t.test(`while a write takes long, commands for ${name} are answered with their own write, and again ahead of it once one was quick`, async (t) => {
    const { records, before } = memory()
    const other = memory()
    let now = 0
    const both: VersionedRecords = { unstored: () => [], read: (id, known) => (id === ID ? records : other.records).read(id, known), replace: (next, before) => (next.id === ID ? records : other.records).replace(next, before) }
    const store = openChanges(both, { isSole: true, clock: () => now })
    for (const id of [ID, OTHER]) await store.change(id, plan(), T0)
    const [begun, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    before.replace.push(() => (begun.resolve(), mayEnd.promise))
    const first = await store.decide(ID, admit('r1', 10), T0)
    await begun.promise
    t.same(await answeredEarly([store.decide(change, admit('r2', 10), T0)], () => {}), [true], 'a write that is in progress for a moment')
    now = 101
    const hanging = Promise.withResolvers<void>()
    other.before.replace.push(() => hanging.promise)
    t.same(await answeredEarly(['r3', 'r4'].map((id) => store.decide(change, admit(id, 10), T0)), () => (mayEnd.resolve(), hanging.resolve())), [false, false])
    await first.durable
    await store.change(change, admit('r5', 10), T0)
    const held = Promise.withResolvers<void>()
    for (const hooks of [before, other.before]) hooks.replace.push(() => held.promise)
    t.same(await answeredEarly([store.decide(change, admit('r6', 10), T0)], held.resolve), [true])
  })
}

t.test('after a write that failed no command is answered before its own write, on any record and at no retry, until one has succeeded', async (t) => {
  const [one, other] = [memory(), memory()]
  const of = (id: string) => (id === ID ? one : other)
  let isFull = false
  let failures = 0
  const disk: VersionedRecords = {
    unstored: () => [],
    read: (id, known) => of(id).records.read(id, known),
    async replace(next, before) {
      if (isFull) lost(void failures++)
      return of(next.id).records.replace(next, before)
    },
  }
  const reasons: unknown[] = []
  const { change, decide } = openChanges(disk, { isSole: true, clock: () => 0, pause: () => nextTick(), failing: (reason) => reasons.push(reason) })
  for (const id of [ID, OTHER]) await change(id, plan(), T0)
  isFull = true
  const { durable } = await decide(ID, admit('r1', 10), T0)
  while (reasons.length === 0) await nextTick()
  t.match(reasons, [Unavailable])
  const waiting = [decide(ID, admit('r2', 10), T0), decide(OTHER, admit('r3', 10), T0)]
  t.same(await answeredEarly(waiting, () => (isFull = false)), [false, false])
  t.ok(failures > 2, 'they were retried meanwhile')
  await durable
  t.same(reasons.slice(1), [null], 'the beginning and the end of it are told once')
  const held = Promise.withResolvers<void>()
  other.before.replace.push(() => held.promise)
  t.same(await answeredEarly([decide(OTHER, admit('r4', 10), T0)], held.resolve), [true])
})

t.test('the first command of a process is answered with its write: nobody knows yet whether the store stores', async (t) => {
  const { records, before } = memory()
  await openChanges(records).change(ID, plan(), T0)
  const { decide } = openChanges(records, { isSole: true })
  const held = Promise.withResolvers<void>()
  before.replace.push(() => held.promise)
  t.same(await answeredEarly([decide(ID, admit('r1', 10), T0)], held.resolve), [false])
})

t.test('an answer whose write fails for good is not durable', async (t) => {
  const { records, before } = memory()
  let now = 0
  const { change, decide } = openChanges(records, { isSole: true, clock: () => now, pause: async () => {}, retryForMs: 1000 })
  await change(ID, plan(), T0)
  before.replace.push(() => {
    now = 1000
    lost()
  })
  const { answer, durable } = await decide<'admit'>(ID, admit('r1', 10), T0)
  t.match(answer, { outcome: 'admitted' })
  await t.rejects(durable, Unavailable)
})

t.test('an answer that the record does not give again after a failed write is not durable', async (t) => {
  const { records, before, rival, record } = memory()
  const { change, decide } = openChanges(records, { isSole: true, pause: async () => {} })
  await change(ID, plan({}, { sessionTokens: 100 }), T0)
  before.replace.push(() => {
    rival(admit('other', 60))
    lost()
  })
  const { answer, durable } = await decide<'admit'>(ID, admit('r1', 60), T0)
  t.match(answer, { outcome: 'admitted' })
  await t.rejects(durable, Unavailable)
  t.same(sessionOf(record()), { used: 0, reserved: 60 })
})

t.test('whatever a process that writes alone answers as durable is in the record, once, under failures of every kind', async (t) => {
  for (let seed = 1; seed <= 60; seed++) {
    const random = seeded(seed * 7919)
    const { records, record } = memory()
    const late: (() => Promise<unknown>)[] = []
    const failed = () => (random() < 0.5 ? lost() : Promise.reject(new Unwritable('store', new Error('database or disk is full'))))
    const faulty: VersionedRecords = {
    unstored: () => [],
      async read(...args) {
        if (random() < 0.2) await failed()
        return records.read(...args)
      },
      async replace(...args) {
        // A write that was given up takes effect before the next one.
        await late.shift()?.()
        if (random() < 0.2) await failed()
        for (let turns = Math.floor(random() * 3); turns > 0; turns--) await nextTick()
        if (random() < 0.1) {
          late.push(() => records.replace(...args))
          await failed()
        }
        const outcome = await records.replace(...args)
        if (random() < 0.2) await failed()
        return outcome
      },
    }
    // It may lose its time after a failure, so that commands are given up.
    const { change, decide } = openChanges(faulty, { isSole: true, clock: () => (random() < 0.02 ? 10_000 : 0), pause: async () => {} })
    while (!(await change(ID, plan({}, { sessionTokens: 3000 }), T0).then(() => true, () => false)));
    let least = 0
    let most = 0
    const request = async (n: number): Promise<void> => {
      for (let turns = Math.floor(random() * 30); turns > 0; turns--) await nextTick()
      const admission = await decide<'admit'>(ID, admit(`r${n}`, 100), T0).catch(() => null)
      if (admission?.answer.outcome !== 'admitted') return
      const isKept = await admission.durable.then(() => true, () => false)
      if (isKept && !record()?.coding?.reservations[`r${n}`]) t.fail(`seed ${seed}: the durable admission of r${n} is not in the record`)
      most += 10
      const settled = await change(ID, settle(`r${n}`, 10), T0).catch(() => null)
      if (settled?.outcome === 'settled') least += 10
      if (isKept && settled?.outcome === 'settled' && record()?.coding?.reservations[`r${n}`]) t.fail(`seed ${seed}: r${n} is settled and open`)
    }
    await Promise.all(Array.from({ length: 60 }, (_, n) => request(n)))
    const { used } = sessionOf(record())
    if (used < least || used > most) t.fail(`seed ${seed}: ${used} tokens are charged, between ${least} and ${most} were`)
  }
})

t.test('a write that failed is repeated before what was called later: who came first gets what is left', async (t) => {
  for (const isSole of [false, true]) {
    for (const failure of ['lost', 'conflict'] as const) {
      if (isSole && failure === 'conflict') continue
      const { records, before, rival, record } = memory()
      const { change } = openChanges(records, { isSole, pause: async () => {} })
      await change(ID, mediaPlan({ allowance: 1 }), T0)
      let second: Promise<unknown> | undefined
      before.replace.push(() => {
        second = change(ID, hold('later'), T0)
        if (failure === 'lost') lost()
        rival(mediaPlan({ allowance: 1 }, { plan: { uid: 'plan-1', createdAt: T0, generation: 2 } }))
      })
      t.match(await change(ID, hold('first'), T0), { outcome: 'held' }, `${failure}, ${isSole ? 'alone' : 'beside others'}`)
      t.match(await second, { outcome: 'insufficient' })
      t.equal(record()?.media?.holds.count, 1)
    }
  }
})
