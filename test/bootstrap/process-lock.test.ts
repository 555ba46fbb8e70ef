import t from 'tap'
import { lock } from '../../src/bootstrap/process-lock.ts'

t.test('a lock that is refused names the reason', async (t) => {
  const folder = t.testdir({ other: 'no database, but longer than the header of one: '.repeat(4) })
  await t.rejects(lock(`${folder}/other`, 'DATA_DIR', folder), { message: /^DATA_DIR was .*; it must be one whose files can be written and locked \(file is not a database\)\.$/ })
  const first = await lock(`${folder}/lock`, 'DATA_DIR', folder)
  await t.rejects(lock(`${folder}/lock`, 'DATA_DIR', folder), { message: /one that no other running program uses/ })
  await first.close()
})
