/** The controller's turn, over a store of memory: who has it, and what ends it. */
import t from 'tap'
import { Unavailable } from '../../src/domain/errors.ts'
import { holdControllerLease } from '../../src/bootstrap/controller-lease.ts'
import { openStore } from '../../src/backends/store/store.ts'

const TIMES = { leaseMs: 300, renewMs: 20 }

t.test('who has the turn gives it back when it stops, and is not followed before', async (t) => {
  const folder = t.testdir({ first: {}, second: {} })
  const store = await openStore(`sqlite:${folder}/tollgate.db`)
  t.teardown(() => store.close())
  const never = (error: Error) => t.fail(error.message)
  const turn = await holdControllerLease(store, `${folder}/first`, never)
  await t.rejects(holdControllerLease(store, `${folder}/second`, never), Unavailable)
  await turn.close()
  const next = await holdControllerLease(store, `${folder}/second`, never)
  await next.close()
})

t.test('the turn is lost in time when the store refuses, fails or hangs', async (t) => {
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
    const turn = await holdControllerLease(store, t.testdir({}), lost.resolve, TIMES)
    t.match(await lost.promise, { message: /controller lease lost/ }, how)
    t.comment(`${how}: after ${Math.round(performance.now() - startedAt)} ms of ${TIMES.leaseMs}`)
    if (how !== 'hangs') await turn.close()
  }
})
