/** A store that takes no writes: a full SQLite file, one that may only be read, and what becomes of the commands. */
import t, { type Test } from 'tap'
import { Unwritable } from '../../../src/domain/errors.ts'
import { openChanges } from '../../../src/backends/store/group-commit.ts'
import { openDatabase } from '../../../src/backends/store/sqlite/database.ts'
import { startThread } from '../../../src/backends/store/sqlite/database-thread.ts'
import { UPGRADES } from '../../../src/backends/store/sqlite/migrations.ts'
import type { VersionedRecords } from '../../../src/backends/store/versioned-records.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { admit, ID, plan, settle, T0 } from '../../contracts/store/acme.ts'

const isRefused = async (t: Test, work: Promise<unknown>) => t.type(await work.catch((error: unknown) => error), Unwritable)

t.test('a full database takes no writes, and takes them again once there is room', async (t) => {
  const database = openDatabase(`${t.testdir()}/tollgate.db`, ['CREATE TABLE a (x BLOB)'])
  t.teardown(() => database.close())
  const insert = database.prepare('INSERT INTO a VALUES (zeroblob(100000))')
  const room = (pages: number) => database.prepare(`PRAGMA max_page_count = ${pages}`).get()
  room(1)
  await isRefused(t, database.write(() => insert.run()))
  room(1_000)
  t.equal(await database.write(() => insert.run()), 1)
})

t.test('the thread that serves knows that the thread of the database may not write', async (t) => {
  const file = `${t.testdir()}/tollgate.db`
  await openDatabase(file, UPGRADES).close()
  const reader = startThread({ file, kind: 'reader' }, () => {})
  t.teardown(() => reader.close())
  await reader.open()
  await isRefused(t, reader.call('heartbeat', ['i1', 1]))
})

for (const isSole of [false, true]) {
  t.test(`an admission fails with the first attempt, and without one while the next is awaited; all else is repeated, ${isSole ? 'alone' : 'beside others'}`, async (t) => {
    let record: Subscription | null = null
    let [attempts, isFull] = [0, false]
    const records: VersionedRecords = {
      unstored: () => [],
      read: async () => record,
      async replace(next) {
        attempts++
        if (isFull) throw new Unwritable('store', new Error('database or disk is full'))
        record = next
        return 'replaced'
      },
    }
    const pause = Promise.withResolvers<void>()
    const { change, decide } = openChanges(records, { isSole, clock: () => 0, pause: () => pause.promise })
    const stored = (id: string) => decide<'admit'>(ID, admit(id, 10), T0).then(({ durable }) => durable)
    await change(ID, plan(), T0)
    await stored('r1')
    isFull = true
    const settled = change<'settle'>(ID, settle('r1', 10), T0)
    for (const id of ['r2', 'r3']) await isRefused(t, stored(id))
    t.equal(attempts, 3)
    isFull = false
    pause.resolve()
    t.match(await settled, { outcome: 'settled' })
    await stored('r4')
    t.same(Object.keys((record as Subscription | null)?.coding?.reservations ?? {}), ['r4'])
  })
}
