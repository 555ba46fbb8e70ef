/** A process that stands still between two attempts of a write. */
import t from 'tap'
import { openChanges } from '../../../src/backends/store/group-commit.ts'
import type { VersionedRecords } from '../../../src/backends/store/versioned-records.ts'
import { Unavailable } from '../../../src/domain/errors.ts'
import { reduce } from '../../../src/domain/subscription/reducer.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'
import { admit, ID, plan, T0 } from '../../contracts/store/acme.ts'

t.test('an admission of unknown outcome is not repeated past its deadline: another gateway has charged it by then', async (t) => {
  let record: Subscription | null = null
  let now = 0
  let isLost = false
  const records: VersionedRecords = {
    unstored: () => [],
    read: async (_id, known) => (record && record.version === known ? 'unchanged' : record),
    async replace(next, before) {
      if (record?.version !== before?.version) return 'conflict'
      record = next
      if (!isLost) return 'replaced'
      isLost = false
      throw new Unavailable('store', new Error('no answer came'))
    },
  }
  const { instance } = admit('r', 10)
  async function pause(): Promise<void> {
    now += 65_000
    const next = reduce(record, { op: 'expire', instance }, T0, ID).record
    if (next) record = { ...next, version: (record?.version ?? 0) + 1 }
  }
  const { change } = openChanges(records, { clock: () => now, pause: pause as never })
  await change(ID, plan(), T0)
  isLost = true
  await t.rejects(change(ID, admit('r', 10), T0), Unavailable)
  t.same(Object.keys((record as Subscription | null)?.coding?.reservations ?? {}), [])
})
