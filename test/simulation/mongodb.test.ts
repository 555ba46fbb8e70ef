import { setTimeout as pause } from 'node:timers/promises'
import { Collection } from 'mongodb'
import t from 'tap'
import { mongodb } from '../servers/mongodb.ts'
import { MONGODB_BUGS } from './bugs-mongodb.ts'
import { detectBugs, planted } from './planted-bugs.ts'
import { runSeed } from './run-seed.ts'

/** Includes one coding scenario. For more seeds there is `npm run simulate -- --store mongodb`: every step is a round trip to a real server. */
const SEEDS = [1, 2, 3, 4, 5, 6]
/** Bugs that are found within few seeds; for the others there is `npm run simulate -- --store mongodb --bugs`. */
const QUICK = 20

t.test('over a real MongoDB server every invariant holds, also when a verb is torn between two of its writes', async (t) => {
  const server = await mongodb(t)
  if (server === null) return
  for (const seed of SEEDS) {
    const { scenario, faults, violations } = await runSeed(seed, { server })
    t.same(violations, [], `seed ${seed}: ${scenario}, ${faults}`)
  }
})

t.test('over a real MongoDB server a seed is reproducible, however slow the server is', async (t) => {
  const server = await mongodb(t)
  if (server === null) return
  const first = await runSeed(12, { traced: true, server })
  t.ok(first.trace.length > first.steps)
  const { bulkWrite } = Collection.prototype
  t.intercept(Collection.prototype, 'bulkWrite', {
    async value(this: Collection, ...values: Parameters<typeof bulkWrite>) {
      if (this.collectionName === 'usage_records') await pause(50)
      return bulkWrite.apply(this, values)
    },
    writable: true,
  })
  t.same((await runSeed(12, { traced: true, server })).trace, first.trace)
})

t.test('every bug of the list can be planted in the MongoDB adapter', async (t) => {
  for (const bug of MONGODB_BUGS) t.not(planted(bug), '', bug.name)
})

t.test('bugs planted in the MongoDB adapter are found within a few seeds', async (t) => {
  const server = await mongodb(t)
  if (server === null) return
  await detectBugs(MONGODB_BUGS.filter(({ within }) => within <= QUICK), server, (detection) => {
    if (detection.outcome === 'found') t.pass(`${detection.bug.name}: seed ${detection.seed}`)
    else t.fail(`${detection.outcome}: ${detection.bug.name}`, { output: detection.output })
  })
})
