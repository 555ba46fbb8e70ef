import { randomUUIDv7 } from 'node:crypto'
import t from 'tap'
import { monotonicUuids } from '../../src/tasks/task-ids.ts'

const id = (time: string, rest: string, last = '000000000000') => `01a20414-${time}-7${rest}-8000-${last}`
const idsOf = (...drawn: string[]) => monotonicUuids(() => drawn.shift() ?? '')

t.test('ids rise within a millisecond: one that would be earlier is the last one plus a random number', async (t) => {
  const next = idsOf(id('f1ae', '991'), id('f1ae', '4dd', 'ffff00000041'), id('f1ae', '991'), id('f1ae', 'a00'), id('f1af', '033'))
  const ids = [id('f1ae', '991'), id('f1ae', '991', '000000000042'), id('f1ae', '991', '000000000043'), id('f1ae', 'a00'), id('f1af', '033')]
  t.same([next(), next(), next(), next(), next()], ids)
})

t.test('an id whose count is used up is drawn again', async (t) => {
  const next = idsOf(id('f1ae', '991', 'ffffffffffff'), id('f1ae', '4dd'), id('f1ae', '992'))
  t.same([next(), next()], [id('f1ae', '991', 'ffffffffffff'), id('f1ae', '992')])
})

t.test('a clock that was set back delays no id', async (t) => {
  const next = idsOf(id('f1ae', '991'), id('f1aa', '001'), id('f1aa', '000'), id('f1aa', '002'))
  t.same([next(), next(), next(), next()], [id('f1ae', '991'), id('f1aa', '001'), id('f1aa', '001', '000000000001'), id('f1aa', '002')])
})

t.test('thousands of real ones are in order, each is a UUID v7, and few are drawn again', async (t) => {
  let draws = 0
  const next = monotonicUuids(() => (draws++, randomUUIDv7()))
  const ids = Array.from({ length: 5_000 }, next)
  t.same(ids.toSorted(), ids)
  t.equal(new Set(ids).size, ids.length)
  t.ok(ids.every((one) => /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(one)))
  t.ok(draws < 2 * ids.length, `${draws} draws`)
})
