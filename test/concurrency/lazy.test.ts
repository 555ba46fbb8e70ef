import t from 'tap'
import { lazy } from '../../src/concurrency/lazy.ts'

t.test('it is opened at first use, once for all, and again after a failure', async (t) => {
  const begun: PromiseWithResolvers<number>[] = []
  const one = lazy(() => {
    const next = Promise.withResolvers<number>()
    begun.push(next)
    return next.promise
  })
  t.equal(await one.opened(), null)
  t.equal(begun.length, 0)

  const failing = [one.get(), one.get()]
  const opened = one.opened()
  begun[0]?.reject(new Error('no descriptor is free'))
  for (const get of failing) await t.rejects(get, /no descriptor/)
  t.equal(await opened, null)

  const again = [one.get(), one.get(), one.opened()]
  begun[1]?.resolve(7)
  t.same(await Promise.all(again), [7, 7, 7])
  t.equal(await one.get(), 7)
  t.equal(begun.length, 2)
})
