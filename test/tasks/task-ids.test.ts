import { randomUUIDv7 } from 'node:crypto'
import t from 'tap'
import { monotonicUuids } from '../../src/tasks/task-ids.ts'

const id = (time: string, rest: string) => `01a20414-${time}-7${rest}-8000-000000000000`

t.test('ids rise within a millisecond: what would come before the last is drawn again', async (t) => {
  const drawn = [id('f1ae', '991'), id('f1ae', '4dd'), id('f1ae', '991'), id('f1ae', 'a00'), id('f1af', '033')]
  const next = monotonicUuids(() => drawn.shift() ?? '')
  t.same([next(), next(), next()], [id('f1ae', '991'), id('f1ae', 'a00'), id('f1af', '033')])
})

t.test('a clock that was set back keeps nobody waiting', async (t) => {
  const drawn = [id('f1ae', '991'), id('f1aa', '001'), id('f1aa', '000'), id('f1aa', '002')]
  const next = monotonicUuids(() => drawn.shift() ?? '')
  t.same([next(), next(), next()], [id('f1ae', '991'), id('f1aa', '001'), id('f1aa', '002')])
})

t.test('thousands of real ones are in order, and each is a UUID v7', async (t) => {
  const next = monotonicUuids(randomUUIDv7)
  const ids = Array.from({ length: 5_000 }, next)
  t.same(ids.toSorted(), ids)
  t.equal(new Set(ids).size, ids.length)
  t.match(ids[0], /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
})
