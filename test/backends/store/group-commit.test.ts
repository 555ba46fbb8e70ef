import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Command } from '../../../src/domain/subscription/commands.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { openChanges, type Side } from '../../../src/backends/store/group-commit.ts'
import { admit, ID, plan, sessionOf, settle, T0 } from '../../contracts/store/acme.ts'

/** A side in memory that counts, and whose next steps a test may put in the way: each hook is called before the real step, once. */
function memory() {
  let record: Subscription | null = null
  const seen = { reads: 0, known: [] as (number | undefined)[], replaces: 0 }
  const before: { read: (() => unknown)[]; replace: (() => unknown)[] } = { read: [], replace: [] }
  const side: Side = {
    async read(_id, known) {
      seen.reads++
      seen.known.push(known)
      await before.read.shift()?.()
      return record && record.version === known ? 'unchanged' : record
    },
    async replace(next, expected) {
      seen.replaces++
      await before.replace.shift()?.()
      if ((record?.version ?? 0) !== expected) return 'conflict'
      record = next
      return 'replaced'
    },
  }
  return {
    side,
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

function lost(): never {
  throw new Unavailable('store', new Error('no answer came'))
}

t.test('what waits is written once, and what comes meanwhile once after it', async (t) => {
  const { side, seen, before, record } = memory()
  const { change } = openChanges(side)
  const later: Promise<unknown>[] = []
  before.replace.push(() => later.push(...['r2', 'r3'].map((id) => change(ID, admit(id, 10), T0))))
  await Promise.all([change(ID, plan(), T0), change(ID, admit('r1', 10), T0)])
  await Promise.all(later)
  t.same(seen, { reads: 1, known: [undefined], replaces: 2 })
  t.match(record(), { version: 2 })
  t.same(sessionOf(record()), { used: 0, reserved: 30 })
})

t.test('of very many that wait, some are written at once and the others after them', async (t) => {
  const { side, seen, record } = memory()
  const { change } = openChanges(side)
  await change(ID, plan(), T0)
  const answers = await Promise.all(Array.from({ length: 450 }, (_, n) => change(ID, admit(`r${n}`, 1), T0)))
  t.ok(answers.every(({ outcome }) => outcome === 'admitted'))
  t.equal(seen.replaces, 4)
  t.same(sessionOf(record()), { used: 0, reserved: 450 })
})

t.test('those behind the ones that are tried wait no longer than they', async (t) => {
  const { side, before, seen } = memory()
  let now = 0
  const { change } = openChanges(side, { patienceMs: 1000, clock: () => now, pause: async () => {} })
  before.read.push(() => {
    now = 1000
    lost()
  })
  const settled = await Promise.allSettled(Array.from({ length: 450 }, (_, n) => change(ID, admit(`r${n}`, 1), T0)))
  for (const one of settled) if (one.status === 'fulfilled' || !(one.reason instanceof Unavailable)) t.fail('it was answered')
  t.equal(seen.reads, 1)
})

t.test('nobody is answered before the write', async (t) => {
  const { side, before } = memory()
  const { change } = openChanges(side)
  let answered = false
  before.replace.push(() => new Promise((resolve) => setImmediate(() => resolve(t.equal(answered, false)))))
  await change(ID, plan(), T0).then(() => (answered = true))
  t.equal(answered, true)
})

t.test('a refusal is given on a record that was read after it was asked for, not on the one kept from the last write', async (t) => {
  const { side, seen, before, rival } = memory()
  const { change } = openChanges(side)
  let late: Promise<unknown> | undefined
  before.replace.push(() => {
    late = change(ID, { op: 'extend', id: 'r1', tokens: 50 }, T0)
  })
  // The copy kept from this write knows no r1. Another process admits it before the extension looks.
  before.read.push(() => {}, () => rival(admit('r1', 10)))
  await change(ID, plan(), T0)
  t.match(await late, { outcome: 'extended', reserved: 50 })
  t.same(seen, { reads: 2, known: [undefined, 1], replaces: 2 })
})

t.test('a refusal is not read for again where a write of the same batch proves the record', async (t) => {
  const { side, seen, before } = memory()
  const { change } = openChanges(side)
  const late: Promise<unknown>[] = []
  before.replace.push(() => late.push(change(ID, { op: 'extend', id: 'none', tokens: 50 }, T0), change(ID, admit('r1', 10), T0)))
  await change(ID, plan(), T0)
  t.match(await Promise.all(late), [{ outcome: 'gone' }, { outcome: 'admitted' }])
  t.equal(seen.reads, 1)
})

t.test('an unchanged record is neither sent nor judged again', async (t) => {
  const { side, seen, before } = memory()
  const { change } = openChanges(side)
  let late: Promise<unknown> | undefined
  before.replace.push(() => {
    late = change(ID, settle('none', 5), T0)
  })
  await change(ID, plan(), T0)
  t.same(await late, { outcome: 'already' })
  t.same(seen, { reads: 2, known: [undefined, 1], replaces: 1 })
})

t.test('where another process was first, the change is made again on what it left', async (t) => {
  const { side, before, rival, record } = memory()
  const reasons: string[] = []
  const { change } = openChanges(side, { retried: (reason) => reasons.push(reason) })
  await change(ID, plan({}, { sessionTokens: 100 }), T0)
  before.replace.push(() => rival(admit('theirs', 60)), () => rival(settle('theirs', 10)))
  t.match(await change(ID, admit('ours', 40), T0), { outcome: 'admitted' })
  t.same(reasons, ['conflict', 'conflict'])
  t.same(sessionOf(record()), { used: 10, reserved: 40 })
})

t.test('where a write lost its outcome, the change happens once, whether it was written or not', async (t) => {
  for (const written of [true, false]) {
    const { side, before, rival, record } = memory()
    const reasons: string[] = []
    const { change } = openChanges(side, { retried: (reason) => reasons.push(reason), pause: async () => {} })
    await change(ID, plan(), T0)
    await nextTurn()
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

t.test('a change that never learns its outcome is unavailable when its own patience ends, and the next one starts afresh', async (t) => {
  const { side, before } = memory()
  let now = 0
  const pauses: number[] = []
  const changes = openChanges(side, {
    patienceMs: 1000,
    clock: () => now,
    pause: async (ms) => {
      pauses.push(ms)
      await nextTurn()
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

t.test('an error that is no outage is not tried again, and fails who waited for that write', async (t) => {
  const { side, before, seen } = memory()
  const { change } = openChanges(side)
  before.replace.push(() => {
    throw new TypeError('not a record')
  })
  const settled = await Promise.allSettled([change(ID, plan(), T0), change(ID, admit('r1', 1), T0)])
  for (const one of settled) t.match(one, { status: 'rejected', reason: TypeError })
  t.equal(seen.replaces, 1)
  t.same(await change(ID, plan(), T0), { outcome: 'applied' })
})

t.test('an idle subscription takes no memory: its record is read again', async (t) => {
  const { side, seen } = memory()
  const { change } = openChanges(side)
  await change(ID, plan(), T0)
  await nextTurn()
  await change(ID, admit('r1', 1), T0)
  t.same(seen, { reads: 2, known: [undefined, undefined], replaces: 2 })
})

t.test('closing waits for the write under way and tries no outage again; afterwards nothing is accepted', async (t) => {
  const { side, before, record, rival } = memory()
  const changes = openChanges(side)
  await changes.change(ID, plan(), T0)
  before.replace.push(() => rival(admit('theirs', 1)))
  const conflicting = changes.change(ID, admit('r1', 1), T0)
  await changes.close()
  t.match(await conflicting, { outcome: 'admitted' })
  t.same(sessionOf(record()), { used: 0, reserved: 2 })
  await t.rejects(changes.change(ID, admit('r2', 1), T0), Unavailable)

  const away = memory()
  const hopeless = openChanges(away.side)
  away.before.read.push(lost, lost)
  const failing = t.rejects(hopeless.change(ID, plan(), T0), Unavailable)
  await hopeless.close()
  await failing
  t.equal(away.seen.reads, 1)
})

t.test('of two processes that never run out of work for one record, none is kept from writing', async (t) => {
  const STEP_MS = 20
  const { side } = memory()
  // Steps of both fall due one after the other on a clock of their own; a read takes as long as a write.
  let now = 0
  const due: { at: number; wake: () => void }[] = []
  const pause = (ms: number): Promise<void> => new Promise((wake) => due.push({ at: now + ms, wake }))
  const slow: Side = {
    async read(...asked) {
      await pause(STEP_MS)
      return side.read(...asked)
    },
    async replace(...asked) {
      await pause(STEP_MS)
      return side.replace(...asked)
    },
  }
  await openChanges(side).change(ID, plan(), T0)
  const written = [0, 0]
  const late = [0, 0]
  for (const who of [0, 1]) {
    const { change } = openChanges(slow, { clock: () => now, pause, patienceMs: 1000 })
    const count = (counts: number[]) => () => void (counts[who] = (counts[who] ?? 0) + 1)
    // Requests come whether or not those before were answered, so that something always waits while something is written.
    void (async () => {
      for (let n = 0; ; n++) {
        await pause(STEP_MS / 2)
        change(ID, n % 2 === 0 ? admit(`${who}-${n}`, 1) : settle(`${who}-${n - 1}`, 1), T0).then(count(written), count(late))
      }
    })()
  }
  while (now < 20_000) {
    for (let turns = 0; turns < 5; turns++) await nextTurn()
    due.sort((a, b) => a.at - b.at)
    const next = due.shift()
    now = next?.at ?? now
    next?.wake()
  }
  t.same(late, [0, 0], 'nobody waited in vain')
  t.ok(Math.min(...written) * 2 > Math.max(...written), `${written.join(' and ')} were written`)
})
