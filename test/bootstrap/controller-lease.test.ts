/** The controller's lease: who holds it, and how it is lost. */
import t from 'tap'
import { Unavailable } from '../../src/domain/errors.ts'
import { holdControllerLease } from '../../src/bootstrap/controller-lease.ts'
import { openStore } from '../../src/backends/store/store.ts'

const TIMES = { leaseMs: 300, renewMs: 20 }

t.test('the holder of the lease releases it when it stops, and nobody gets it before', async (t) => {
  const folder = t.testdir({ first: {}, second: {} })
  const store = await openStore(`sqlite:${folder}/tollgate.db`)
  t.teardown(() => store.close())
  const never = (error: Error) => t.fail(error.message)
  const lease = await holdControllerLease(store, `${folder}/first`, never)
  await t.rejects(holdControllerLease(store, `${folder}/second`, never), Unavailable)
  await lease.close()
  const next = await holdControllerLease(store, `${folder}/second`, never)
  await next.close()
})

t.test('the lease is lost in time when the store refuses, fails or hangs', async (t) => {
  const answers = {
    refuses: async () => false,
    fails: async () => Promise.reject(new Error('away')),
    hangs: () => new Promise<boolean>(() => {}),
  }
  for (const [how, answer] of Object.entries(answers)) {
    let asked = 0
    let startedAt = 0
    const store = {
      clock: async () => Date.now(),
      takeLease: async () => {
        if (asked++ > 0) return answer()
        startedAt = performance.now()
        return true
      },
      releaseLease: async () => {},
    }
    const lost = Promise.withResolvers<Error>()
    const lease = await holdControllerLease(store, t.testdir({}), lost.resolve, TIMES)
    t.match(await lost.promise, { message: /controller lease lost/ }, how)
    t.comment(`${how}: after ${Math.round(performance.now() - startedAt)} ms of ${TIMES.leaseMs}`)
    if (how !== 'hangs') await lease.close()
  }
})
