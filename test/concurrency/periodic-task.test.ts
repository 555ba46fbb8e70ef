import t from 'tap'
import { Unavailable } from '../../src/domain/errors.ts'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'

t.test('failures in a row are reported ever more rarely, and the first one after a success at once', async (t) => {
  let isAway = true
  const reported: number[] = []
  let run = 0
  const task = periodicTask(
    1_000,
    async () => {
      run++
      if (isAway) throw new Error('the store is away')
    },
    () => void reported.push(run),
  )
  for (let n = 0; n < 20; n++) await task.runNow()
  t.same(reported, [1, 2, 4, 8, 16])
  isAway = false
  await task.runNow()
  isAway = true
  await task.runNow()
  t.same(reported, [1, 2, 4, 8, 16, 22])
})

t.test('another failure is reported at once, and an equal one again after 512 at most', async (t) => {
  const reported: number[] = []
  let run = 0
  const task = periodicTask(
    1_000,
    async () => {
      throw new Unavailable('store', Object.assign(new Error(`connection ${++run}`), { code: run <= 11 ? 'ECONNREFUSED' : 13 }))
    },
    () => void reported.push(run),
  )
  for (let n = 0; n < 2_000; n++) await task.runNow()
  t.same(reported, [1, 2, 4, 8, ...[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1536].map((n) => 11 + n)])
})
