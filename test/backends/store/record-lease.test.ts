/** The group commit of a process with a lease on a record: what it answers at once, when it writes, and what the record then makes of it. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { openChanges } from '../../../src/backends/store/group-commit.ts'
import { DecidedOtherwise } from '../../../src/backends/store/queued-command.ts'
import type { VersionedRecords } from '../../../src/backends/store/versioned-records.ts'
import { Unavailable } from '../../../src/domain/errors.ts'
import type { Command } from '../../../src/domain/subscription/commands.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { admit, ID, plan, settle, T0 } from '../../contracts/store/acme.ts'

/** A store with one record, whose clock and pauses the test moves; one request was admitted, and has taken the lease. Before it, `asked` others were refused. */
async function setUp(asked = 20) {
  let record: Subscription | null = null
  let now = 0
  const pauses: { ms: number; end: () => void }[] = []
  const fails: (() => void)[] = []
  /** Each is called once, after a read has found what it returns. */
  const reading: (() => void)[] = []
  const seen = { reads: 0, replaces: 0 }
  const records: VersionedRecords = {
    async read(_id, known) {
      seen.reads++
      const found = record && record.version === known ? 'unchanged' : record
      reading.shift()?.()
      return found
    },
    unstored: () => [],
    async replace(next, before) {
      seen.replaces++
      fails.shift()?.()
      if (record?.version !== before?.version) return 'conflict'
      record = next
      return 'replaced'
    },
  }
  const pause = (ms: number) => new Promise<void>((end) => void pauses.push({ ms, end }))
  const open = () => openChanges(records, { leases: true, clock: () => now, pause })
  const changes = open()
  const told: string[] = []
  const turns = async () => {
    for (let n = 0; n < 20; n++) await nextTurn()
  }
  const rival = (command: Command) => {
    const next = reduce(record, command as never, T0, ID).record
    if (next) record = { ...next, version: (record?.version ?? 0) + 1 }
  }
  const large = plan()
  rival({ ...large, terms: { ...large.terms, requestsPerMinute: 100_000, coding: { ...large.terms.coding, sessionTokens: 1_000_000, weeklyTokens: 1_000_000, maxConcurrentRequests: 400 } } } as typeof large)
  for (let n = 0; n < asked; n++) await changes.change(ID, { ...admit(`stale${n}`, 100), keysVersion: -1 }, T0)
  await changes.change(ID, admit('first', 100), T0)
  await turns()
  return {
    changes,
    told,
    seen,
    fails,
    reading,
    open,
    rival,
    turns,
    now: (command: Command) => {
      const id = 'id' in command ? command.id : command.op
      const lost = (error: unknown) => void told.push(`${id} ${error instanceof DecidedOtherwise ? 'decided otherwise' : 'lost'}`)
      return changes.decideNow(ID, command as never, T0, { stored: () => void told.push(`${id} stored`), lost }) as { outcome: string } | null
    },
    reserved: () => Object.keys(record?.coding?.reservations ?? {}),
    leases: () => Object.keys(record?.coding?.leases ?? {}),
    /** The time passes for which the queue waits now; returns how long that was. */
    async pass(): Promise<number | undefined> {
      const last = pauses.splice(0).at(-1)
      now += last?.ms ?? 0
      last?.end()
      await turns()
      return last?.ms
    },
  }
}

t.test('what a lease covers is answered at once, and written together after 50 ms, with the next lease', async (t) => {
  const { now, pass, turns, told, seen, reserved, leases } = await setUp()
  const { replaces } = seen
  for (const id of ['a', 'b']) t.match(now(admit(id, 100)), { outcome: 'admitted', reserved: 100 })
  t.match(now(settle('first', 30)), { outcome: 'settled', charged: 30 })
  await turns()
  t.same(told, [])
  t.equal(await pass(), 50)
  t.same(told.toSorted(), ['a stored', 'b stored', 'first stored'])
  t.same([reserved(), leases().length, seen.replaces - replaces], [['a', 'b'], 1, 1])
})

t.test('where few requests come, each admission is written at once, and takes what waits with it; a settlement waits', async (t) => {
  const { now, pass, turns, told } = await setUp(0)
  now(settle('first', 30))
  await turns()
  t.same(told, [])
  for (let n = 2; n <= 20; n++) {
    t.match(now(admit(`a${n}`, 100)), { outcome: 'admitted' })
    await turns()
    t.equal(told.at(-1), `a${n} stored`)
  }
  t.equal(told[0], 'first stored')
  now(admit('b', 100))
  await turns()
  t.equal(told.at(-1), 'a20 stored', 'the twenty-first of a second waits')
  t.equal(await pass(), 50)
  t.equal(told.at(-1), 'b stored')
})

t.test('the more gateways wait for each other, the fewer requests count as few', async (t) => {
  const { now, pass, turns, told, rival } = await setUp(0)
  for (const instance of ['b', 'c', 'd']) rival({ op: 'lease', instance, wanted: { tokens: 100, requests: 2, keys: {} }, forMs: 1000 })
  for (let n = 1; n <= 10; n++) {
    now(admit(`a${n}`, 100))
    await turns()
  }
  t.equal(told.at(-1), 'a9 stored')
  t.equal(await pass(), 100)
  t.equal(told.at(-1), 'a10 stored')
})

t.test('a command that is waited for is written at once, and takes the others with it', async (t) => {
  const { now, changes, told, reserved } = await setUp()
  now(admit('a', 100))
  await changes.change(ID, { op: 'extend', id: 'first', tokens: 500 }, T0)
  t.same([told, reserved()], [['a stored'], ['first', 'a']])
})

t.test('sixteen commands are written without waiting', async (t) => {
  const { now, pass, turns, told } = await setUp()
  for (let n = 1; n <= 8; n++) now(admit(`a${n}`, 10))
  await pass()
  for (let n = 1; n <= 16; n++) t.match(now(admit(`b${n}`, 10)), { outcome: 'admitted' })
  await turns()
  t.equal(told.length, 24)
})

t.test('beyond the lease, and once it has lapsed, the record decides', async (t) => {
  const { now, pass } = await setUp()
  t.equal(now(admit('large', 5000)), null)
  t.equal(await pass(), 1000)
  t.equal(now(admit('late', 10)), null)
})

t.test('a record that another gateway has changed is read again, and what was admitted is written to that', async (t) => {
  const { now, pass, rival, told, reserved } = await setUp()
  t.match(now(admit('a', 100)), { outcome: 'admitted' })
  rival({ ...admit('other', 100), instance: 'b' })
  await pass()
  t.same([told, reserved()], [['a stored'], ['first', 'other', 'a']])
})

t.test('what the plan of the write refuses is told so: it was suspended, a key has changed, or its window is full', async (t) => {
  for (const change of [{ ...plan(), state: 'Suspended' as const }, { op: 'keysChanged' as const }]) {
    const { now, pass, rival, told, reserved } = await setUp()
    now(admit('a', 100))
    rival(change)
    await pass()
    t.same([told, reserved()], [['a decided otherwise'], ['first']], change.op)
  }
})

t.test('what the plan of the write gives less than the lease did is told so', async (t) => {
  const { now, pass, rival, told, reserved } = await setUp()
  now(settle('first', 0))
  await pass()
  t.match(now(admit('a', 100)), { outcome: 'admitted', reserved: 100 })
  rival({ ...admit('other', 100), instance: 'b' })
  rival(settle('other', 1_000_000 - 40))
  await pass()
  t.same([told, reserved()], [['first stored', 'a decided otherwise'], ['a']])
})

t.test('a write without an outcome is repeated, and ends the lease until it succeeds', async (t) => {
  const { now, pass, fails, told, reserved } = await setUp()
  now(admit('a', 100))
  fails.push(() => {
    t.equal(now(admit('during', 100))?.outcome, 'admitted')
    throw new Unavailable('store', new Error('no answer came'))
  })
  await pass()
  t.equal(now(admit('after', 100)), null)
  await pass()
  t.same([told, reserved()], [['a stored', 'during stored'], ['first', 'a', 'during']])
  t.match(now(admit('again', 100)), { outcome: 'admitted' })
})

t.test('no command is answered by a record that was read before its call, with a lease and without', async (t) => {
  const { changes, open, reading, rival } = await setUp()
  const extend = (id: string) => ({ op: 'extend', id, tokens: 500 }) as const
  for (const [gateway, id] of [[changes, 'x'], [open(), 'y']] as const) {
    let later: Promise<{ outcome: string }> | undefined
    reading.push(() => {
      rival({ ...admit(id, 100), instance: 'b' })
      later = gateway.change(ID, extend(id), T0)
    })
    t.match(await gateway.change(ID, extend('unknown'), T0), { outcome: 'gone' })
    t.match(await later, { outcome: 'extended' })
  }
})

t.test('a store that closes writes what waits, and gives the lease back', async (t) => {
  const { now, changes, told, leases } = await setUp()
  now(admit('a', 100))
  await changes.close()
  t.same([told, leases()], [['a stored'], []])
  t.equal(now(admit('b', 100)), null)
})
