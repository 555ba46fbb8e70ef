import t from 'tap'
import { openDeadline } from '../../src/http/deadlines.ts'

t.test('a deadline that is nearer than all others passes before them', async (t) => {
  const passed: string[] = []
  const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const late = openDeadline(() => second.resolve(void passed.push('late')))
  const early = openDeadline(() => first.resolve(void passed.push('early')))
  const alive = setInterval(() => {}, 1000)
  late.move(3_600_000)
  early.move(1)
  await first.promise
  late.move(1)
  await second.promise
  clearInterval(alive)
  t.same(passed, ['early', 'late'])
})

t.test('a deadline that is moved or cleared does not pass at its old time', async (t) => {
  const passed: string[] = []
  const [moved, cleared] = [openDeadline(() => passed.push('moved')), openDeadline(() => passed.push('cleared'))]
  moved.move(5)
  cleared.move(5)
  moved.move(3_600_000)
  cleared.clear()
  cleared.clear()
  const later = Promise.withResolvers<void>()
  openDeadline(later.resolve).move(20)
  const alive = setInterval(() => {}, 1000)
  await later.promise
  clearInterval(alive)
  t.same(passed, [])
  moved.clear()
})

t.test('one that passes may clear, move and open others', async (t) => {
  const passed: string[] = []
  const [done, opened] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const first = openDeadline(() => {
    passed.push('first')
    cleared.clear()
    moved.move(10)
    openDeadline(() => opened.resolve()).move(1)
  })
  const cleared = openDeadline(() => passed.push('cleared'))
  const moved = openDeadline(() => done.resolve(void passed.push('moved')))
  for (const one of [first, cleared, moved]) one.move(1)
  const alive = setInterval(() => {}, 1000)
  // All three are due in one sweep.
  const until = performance.now() + 20
  while (performance.now() < until);
  await Promise.all([done.promise, opened.promise])
  clearInterval(alive)
  t.same(passed, ['first', 'moved'])
})

t.test('a deadline that has passed starts again when it is moved', async (t) => {
  let count = 0
  const twice = Promise.withResolvers<void>()
  const deadline = openDeadline(() => (++count === 2 ? twice.resolve() : deadline.move(1)))
  deadline.move(1)
  const alive = setInterval(() => {}, 1000)
  await twice.promise
  clearInterval(alive)
  t.equal(count, 2)
})
