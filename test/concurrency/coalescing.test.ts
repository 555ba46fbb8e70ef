import t from 'tap'
import { coalescing } from '../../src/concurrency/coalescing.ts'

/** Passes that end when the test ends them. */
function passes() {
  const begun: PromiseWithResolvers<void>[] = []
  const run = coalescing(() => {
    const pass = Promise.withResolvers<void>()
    begun.push(pass)
    return pass.promise
  })
  return { begun, run }
}

t.test('callers during a pass share the next one', async (t) => {
  const { begun, run } = passes()
  const first = run()
  const later = [run(), run(), run()]
  t.equal(begun.length, 1)
  begun[0]?.resolve()
  await first
  t.equal(begun.length, 2)
  const last = run()
  begun[1]?.resolve()
  await Promise.all(later)
  t.equal(begun.length, 3)
  begun[2]?.resolve()
  await last
})

t.test('a failed pass fails its own callers, and the next one begins', async (t) => {
  const { begun, run } = passes()
  const [first, later] = [run(), run()]
  begun[0]?.reject(new Error('the disk is full'))
  await t.rejects(first, { message: 'the disk is full' })
  t.equal(begun.length, 2)
  begun[1]?.resolve()
  await later
})

t.test('a call after a pass begins another one', async (t) => {
  const { begun, run } = passes()
  for (const n of [0, 1]) {
    const done = run()
    t.equal(begun.length, n + 1)
    begun[n]?.resolve()
    await done
  }
})
