import t from 'tap'
import { Busy, Unavailable } from '../../src/domain/errors.ts'
import { sweepEach } from '../../src/tasks/sweep-pass.ts'

const away = () => new Unavailable('store', new Error('away'))

/** The items that were begun and those that failed, when `errorOf` says how each ends. */
async function pass(count: number, errorOf: (item: number) => Error | null) {
  const [begun, failed]: [number[], number[]] = [[], []]
  const work = async (item: number) => {
    begun.push(item)
    const error = errorOf(item)
    if (error) throw error
  }
  const thrown = await sweepEach(Array.from({ length: count }, (_, n) => n), work, (item) => failed.push(item)).then(() => null, (error: unknown) => error)
  return { begun, failed, thrown }
}

t.test('items that fail here and there hold up nobody: only three unanswered in a row mean that the store is away', async (t) => {
  const everyThird = await pass(60, (item) => (item % 3 === 0 ? away() : null))
  t.equal(everyThird.thrown, null)
  t.equal(everyThird.begun.length, 60)
  t.equal(everyThird.failed.length, 20)
})

t.test('three unanswered items in a row end the pass, and leave those that were not begun', async (t) => {
  const { begun, failed, thrown } = await pass(60, away)
  t.match(thrown, { name: 'Unavailable' })
  t.ok(begun.length < 20, `${begun.length} begun`)
  t.same(failed, [0, 1])
})

t.test('busy records and errors of other kinds never end a pass', async (t) => {
  const { begun, failed, thrown } = await pass(60, (item) => (item % 2 === 0 ? new Busy('store', new Error('busy')) : new TypeError('wrong')))
  t.equal(thrown, null)
  t.equal(begun.length, 60)
  t.equal(failed.length, 60)
})
