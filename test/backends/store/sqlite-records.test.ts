/** Records that a process reads from memory because nobody else writes the file. */
import t, { type Test } from 'tap'
import { openChanges } from '../../../src/backends/store/group-commit.ts'
import { openDatabase } from '../../../src/backends/store/sqlite/database.ts'
import { openRecords, type RecordRows } from '../../../src/backends/store/sqlite/records.ts'
import { UPGRADES } from '../../../src/backends/store/sqlite/migrations.ts'
import { openVerbs } from '../../../src/backends/store/sqlite/database-verbs.ts'
import { holdOf, holdsFrom } from '../../../src/domain/subscription/holds.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import { admit, hold, ID, mediaPlan, plan, T0, taskId } from '../../contracts/store/acme.ts'

function openRows(t: Test): RecordRows {
  const database = openDatabase(`${t.testdir()}/tollgate.db`, UPGRADES)
  t.teardown(() => database.close())
  const verbs = openVerbs(database)
  return {
    ...verbs,
    async replaceRecord(row, expected, replaced) {
      const outcome = await verbs.replaceRecord(row, expected)
      if (outcome === 'replaced') replaced()
      return outcome
    },
  }
}

/** A record so large that it displaces all others. */
function large() {
  const { record } = reduce<'hold'>(reduce<'applyPlan'>(null, mediaPlan(), T0, 'acme/studio').record, hold(taskId(0)), T0, 'acme/studio')
  const one = holdOf(record?.media?.holds, taskId(0))
  if (!record?.media || !one) throw new TypeError('there is no hold')
  return { ...record, version: 1, media: { ...record.media, holds: holdsFrom(Array.from({ length: 40_000 }, (_, n) => [taskId(n), one] as const)) } }
}

t.test('a record whose read is slower than a write, and than what displaces that write from memory, is not kept', async (t) => {
  const rows = openRows(t)
  await openChanges(openRecords(rows, { isSole: true }).records).change(ID, plan(), T0)
  const [isRead, mayAnswer] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let isFirst = true
  const { records, verbs } = openRecords({
    ...rows,
    async findRecord(id, known) {
      const found = await rows.findRecord(id, known)
      if (!isFirst) return found
      isFirst = false
      isRead.resolve()
      await mayAnswer.promise
      return found
    },
  }, { isSole: true })
  const { change } = openChanges(records)
  const slow = verbs.subscription(ID)
  await isRead.promise
  await change(ID, admit('r1', 1), T0)
  await records.replace(large(), null)
  mayAnswer.resolve()
  await slow
  t.same(Object.keys((await verbs.subscription(ID))?.coding?.reservations ?? {}), ['r1'])
  t.match(await change(ID, admit('r2', 1), T0), { outcome: 'admitted' })
})

t.test('a record that differs from the stored one is read again after a conflict', async (t) => {
  const rows = openRows(t)
  const [here, elsewhere] = [openRecords(rows, { isSole: true }), openRecords(rows, { isSole: true })].map(({ records }) => openChanges(records, { retryForMs: 1_000 }))
  await here?.change(ID, plan(), T0)
  await elsewhere?.change(ID, admit('r1', 1), T0)
  t.match(await here?.change(ID, admit('r2', 1), T0), { outcome: 'admitted' })
})
