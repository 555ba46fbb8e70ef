import t from 'tap'
import { openRecordCache } from '../../../src/backends/store/record-cache.ts'
import type { Subscription } from '../../../src/domain/subscription/subscription.ts'

const MIB = 1024 * 1024
const record = (id: string, version = 1) => ({ id, version }) as Subscription

t.test('a record counts once, however often it is put, and its newest version is the one that is kept', async (t) => {
  const cache = openRecordCache()
  for (let version = 1; version <= 100; version++) cache.put(record('acme/studio', version), MIB)
  t.equal(cache.drops(), 0)
  t.match(cache.get('acme/studio'), { version: 100 })
})

t.test('records of more than 8 MiB together are dropped, and one that is larger is never kept', async (t) => {
  const cache = openRecordCache()
  for (let n = 0; n < 8; n++) cache.put(record(`acme/${n}`), MIB)
  t.equal(cache.drops(), 0)
  cache.put(record('acme/8'), MIB)
  t.equal(cache.drops(), 1)
  t.equal(cache.get('acme/0'), undefined)
  t.match(cache.get('acme/8'), { version: 1 })
  cache.put(record('acme/huge'), 9 * MIB)
  t.equal(cache.get('acme/huge'), undefined)
})
